package cause

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Placer tells, of stacks whose site is a dependency's, from which line of the service's own code the dependency was
// called: there a reader can change something. From then on such a site is another one than the same line called from
// elsewhere.
type Placer struct {
	syms  *tracefmt.Symbols
	sites *Sites
	set   *modules.Set
	frame tracefmt.FrameID // the first that was not looked at
	stack tracefmt.StackID
	owns  memo[tracefmt.FrameID, truth]
	named memo[tracefmt.StringID, truth] // whether a function opens a connection, by its name
	begun bool
}

// NewPlacer returns a Placer for symbols that grow.
func NewPlacer(syms *tracefmt.Symbols, set *modules.Set) *Placer {
	return &Placer{syms: syms, sites: NewSites(syms), set: set, frame: 1, stack: 1}
}

// Place looks at the stacks that were added since it was called last. Nobody may read the symbols meanwhile.
func (p *Placer) Place() {
	main := p.syms.Lookup("main.main")
	for ; int(p.frame) < p.syms.Frames(); p.frame++ {
		if f := p.syms.Frame(p.frame); main != 0 && f.Func == main {
			p.set.Main(p.syms.String(f.File))
		}
	}
	if !p.begun && p.syms.Stacks() > 1 {
		p.begun = true
		p.adopt(main)
	}
	for ; int(p.stack) < p.syms.Stacks(); p.stack++ {
		f := p.sites.find(p.stack)
		if p.opens(p.stack) {
			p.syms.SetOpens(p.stack)
		}
		if from, calls := p.caller(p.stack); from != 0 {
			place := p.syms.Called(f, from)
			p.syms.SetPlace(p.stack, place)
			if p.syms.Callee(place) == 0 {
				p.syms.SetCallee(place, calls)
			}
		} else if fr := p.syms.Frame(f); p.sites.Std(fr.Func) {
			p.callee(p.stack, f)
		}
	}
}

// adopt looks for a program that is a library with a main function around it, which calls it and does nothing else: its
// own code is the library's then.
func (p *Placer) adopt(main tracefmt.StringID) {
	if main == 0 {
		return
	}
	starts := tracefmt.FrameID(0)
	for id := range tracefmt.StackID(p.syms.Stacks()) {
		frames := p.syms.Stack(id)
		for i, f := range frames {
			if p.syms.Frame(f).Func == main {
				if i > 0 && !p.sites.Std(p.syms.Frame(frames[i-1]).Func) {
					starts = frames[i-1]
				}
			} else if p.own(f) {
				return
			}
		}
	}
	if starts != 0 {
		fr := p.syms.Frame(starts)
		p.set.Adopt(p.syms.String(fr.Func), p.syms.String(fr.File))
		p.owns = nil
	}
}

// callee notes what a line of the standard library calls, if that tells what the line is for.
func (p *Placer) callee(id tracefmt.StackID, site tracefmt.FrameID) {
	fn := p.syms.String(p.syms.Frame(site).Func)
	if p.syms.Callee(site) != 0 || !stdlib.Known(fn) {
		return
	}
	frames := p.syms.Stack(id)
	if i := slices.Index(frames, site); i > 0 {
		if callee := p.syms.Frame(frames[i-1]).Func; stdlib.Doing(fn, p.syms.String(callee)) != "" {
			p.syms.SetCallee(site, callee)
		}
	}
}

// caller returns the innermost own frame of a stack whose site is a dependency's, and the function that it calls; 0 if
// there is none.
func (p *Placer) caller(id tracefmt.StackID) (own tracefmt.FrameID, calls tracefmt.StringID) {
	inside := false // of the site
	frames := p.syms.Stack(id)
	for i, f := range frames {
		if p.sites.Std(p.syms.Frame(f).Func) {
			continue
		}
		if !p.own(f) {
			inside = true
			continue
		}
		if inside {
			return f, p.syms.Frame(frames[i-1]).Func
		}
		return 0, 0
	}
	return 0, 0
}

// opens reports whether a library, within the innermost own frame of a stack, opens a connection: whether one of its functions is called so. That
// includes what the protocol says to begin with.
func (p *Placer) opens(id tracefmt.StackID) bool {
	for _, f := range p.syms.Stack(id) {
		if p.named.of(p.syms.Frame(f).Func, p.findNamed) == 1 || p.own(f) {
			return !p.own(f)
		}
	}
	return false
}

func (p *Placer) findNamed(fn tracefmt.StringID) truth {
	return truthOf(opensConnection(p.syms.String(fn)))
}

// opensConnection reports whether a function's name, without its package and type, begins with the word dial, connect or handshake: so libraries call
// what opens a connection (net.(*Dialer).DialContext, pgconn.ConnectConfig, tls.(*Conn).HandshakeContext).
func opensConnection(fn string) bool {
	if i := strings.IndexByte(fn, '['); i >= 0 {
		fn = fn[:i]
	}
	fn = fn[strings.LastIndexByte(fn, '.')+1:]
	for _, word := range []string{"dial", "connect", "handshake"} {
		if n := len(word); len(fn) >= n && strings.EqualFold(fn[:n], word) && (len(fn) == n || fn[n] < 'a' || fn[n] > 'z') {
			return true
		}
	}
	return false
}

func (p *Placer) own(f tracefmt.FrameID) bool { return p.owns.of(f, p.findOwn) == 1 }

func (p *Placer) findOwn(f tracefmt.FrameID) truth {
	fr := p.syms.Frame(f)
	return truthOf(!isGlue(p.syms.String(fr.File)) && p.set.Owns(p.syms.String(fr.Func), p.syms.String(fr.File)))
}
