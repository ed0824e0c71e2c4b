package cause

import (
	"cmp"
	"slices"

	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A CallerFinder finds, for stacks whose site is in a dependency, the line of the service's own code that called the
// dependency: that line can be changed. The site then includes the caller, so the same line of a dependency is a
// different site for each caller. Calls of the standard library that name their work have such sites as well.
type CallerFinder struct {
	syms      *tracefmt.Symbols
	sites     *Sites
	modules   *modules.Set
	nextFrame tracefmt.FrameID // the first frame and stack that ExamineStacks has not processed
	nextStack tracefmt.StackID
	ownFrames memo[tracefmt.FrameID, memoBool]
	hasBegun  bool
}

// NewCallerFinder returns a CallerFinder for symbols that grow.
func NewCallerFinder(syms *tracefmt.Symbols, set *modules.Set) *CallerFinder {
	return &CallerFinder{syms: syms, sites: NewSites(syms), modules: set, nextFrame: 1, nextStack: 1}
}

// ExamineStacks finds the service line, and other facts, of the stacks that were added since its last call, and stores them in the
// symbols. No other goroutine may read the symbols during the call.
func (p *CallerFinder) ExamineStacks() {
	main := p.syms.Lookup("main.main")
	for ; int(p.nextFrame) < p.syms.Frames(); p.nextFrame++ {
		if f := p.syms.Frame(p.nextFrame); main != 0 && f.Func == main {
			p.modules.SetMainFile(p.syms.String(f.File))
		}
	}
	if !p.hasBegun && p.syms.Stacks() > 1 {
		p.hasBegun = true
		p.adoptWrappedProgram(main)
	}
	for ; int(p.nextStack) < p.syms.Stacks(); p.nextStack++ {
		f := cmp.Or(p.namedWork(p.nextStack), p.sites.findSite(p.nextStack))
		if p.opensConnection(p.nextStack) {
			p.syms.SetOpensConnection(p.nextStack)
		}
		if caller, callee := p.ownCaller(p.nextStack, f); caller != 0 {
			site := p.syms.FrameCalledFrom(f, caller)
			p.syms.SetCallerSite(p.nextStack, site)
			if p.syms.Callee(site) == 0 {
				p.syms.SetCallee(site, callee)
			}
		} else if fr := p.syms.Frame(f); p.sites.IsStdlib(fr.Func) {
			p.recordCallee(p.nextStack, f)
		}
	}
}

// adoptWrappedProgram treats a dependency as the service's own code if main.main only calls it and no other own code is in the
// trace: the program is then a library with a main function around it.
func (p *CallerFinder) adoptWrappedProgram(main tracefmt.StringID) {
	if main == 0 {
		return
	}
	program := tracefmt.FrameID(0)
	for id := range tracefmt.StackID(p.syms.Stacks()) {
		frames := p.syms.Stack(id)
		for i, f := range frames {
			if p.syms.Frame(f).Func == main {
				if i > 0 && !p.sites.IsStdlib(p.syms.Frame(frames[i-1]).Func) {
					program = frames[i-1]
				}
			} else if p.isOwn(f) {
				return
			}
		}
	}
	if program != 0 {
		fr := p.syms.Frame(program)
		p.modules.AdoptModuleOf(p.syms.String(fr.Func), p.syms.String(fr.File))
		p.ownFrames = nil
	}
}

// recordCallee records which function a line of the standard library (site) calls in a stack, if the callee shows the purpose of
// the line.
func (p *CallerFinder) recordCallee(id tracefmt.StackID, site tracefmt.FrameID) {
	fn := p.syms.String(p.syms.Frame(site).Func)
	if p.syms.Callee(site) != 0 || !knowledge.HasActivities(fn) {
		return
	}
	frames := p.syms.Stack(id)
	if i := slices.Index(frames, site); i > 0 {
		if callee := p.syms.Frame(frames[i-1]).Func; knowledge.Activity(fn, p.syms.String(callee)) != "" {
			p.syms.SetCallee(site, callee)
		}
	}
}

// namedWork returns the outermost frame of a stack whose function names the work below it; 0 if there is none, or no own code
// called it.
func (p *CallerFinder) namedWork(id tracefmt.StackID) tracefmt.FrameID {
	hasOwn := false
	for _, f := range slices.Backward(p.syms.Stack(id)) {
		if hasOwn && p.sites.RolesOf(f).NamesWork() {
			return f
		}
		hasOwn = hasOwn || p.isOwn(f)
	}
	return 0
}

// ownCaller returns the service's own innermost frame of a stack whose site is in a dependency, named work or a helper that only pauses,
// and the function that this frame calls; 0 if the site is other own code or no frame is.
func (p *CallerFinder) ownCaller(id tracefmt.StackID, site tracefmt.FrameID) (caller tracefmt.FrameID, callee tracefmt.StringID) {
	frames := p.syms.Stack(id)
	seenDependency := p.sites.RolesOf(site).NamesWork()
	if seenDependency {
		frames = frames[slices.Index(frames, site):]
	}
	for i, f := range frames {
		if p.sites.IsStdlib(p.syms.Frame(f).Func) {
			continue
		}
		if !p.isOwn(f) || p.sites.RolesOf(f).Has(knowledge.Pause) {
			seenDependency = true
			continue
		}
		if seenDependency {
			return f, p.syms.Frame(frames[i-1]).Func
		}
		return 0, 0
	}
	return 0, 0
}

// opensConnection reports whether a library, called from the service's own innermost frame of a stack, opens a connection. This
// includes the handshake of its protocol.
func (p *CallerFinder) opensConnection(id tracefmt.StackID) bool {
	for _, f := range p.syms.Stack(id) {
		if p.sites.RolesOf(f).Has(knowledge.Connecting) || p.isOwn(f) {
			return !p.isOwn(f)
		}
	}
	return false
}

// isOwn reports whether a frame belongs to the service's own code.
func (p *CallerFinder) isOwn(f tracefmt.FrameID) bool { return p.ownFrames.get(f, p.findOwn) == 1 }

// findOwn computes isOwn for the cache: a frame of the main module's packages, and not in code that cgo generated.
func (p *CallerFinder) findOwn(f tracefmt.FrameID) memoBool {
	fr := p.syms.Frame(f)
	return memoBoolOf(!isCgoGlue(p.syms.String(fr.File)) && p.modules.IsOwn(p.syms.String(fr.Func), p.syms.String(fr.File)))
}
