package request

import (
	"slices"
	"strings"

	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/modules"
	"github.com/whylate/whylate/internal/trace/stdlib"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// A Namer finds the function in a stack that names the request: the handler. It caches results and is not safe for
// concurrent use.
type Namer struct {
	functionTable
	isResolved        []bool
	handlers          []Handler
	mainModuleDir     string // if the main module has a version
	isMainUnversioned bool
	functionFrames    map[tracefmt.StringID]tracefmt.FrameID
}

// A Handler is the handler that a stack is in.
type Handler struct {
	// Frame is the handler's frame, 0 if the stack has no handler.
	Frame tracefmt.FrameID
	// Key identifies the group: the handler's function, or for gRPC the method's generated function, which is in every
	// stack of the method.
	Key tracefmt.StringID
	// Path holds the service functions that the handler called, outermost first. They distinguish the kinds of request
	// that one handler serves.
	Path CallPath
	// Rank is higher the deeper the frame is in the chain of handlers. Of a request's stacks, the one with the highest
	// rank names it.
	Rank int
	// IsTimeoutGoroutine says that the stack is of a goroutine in which http.TimeoutHandler runs a handler.
	IsTimeoutGoroutine bool
	// IsObserver says that the handler serves profiles or flight recordings.
	IsObserver bool
}

// A CallPath is the beginning of a chain of calls. 0 ends it.
type CallPath [3]tracefmt.StringID

// CommonPrefix returns the leading calls that both paths have, and 0 for the others.
func (p CallPath) CommonPrefix(o CallPath) CallPath {
	for i := range p {
		if p[i] != o[i] {
			clear(p[i:])
			break
		}
	}
	return p
}

// callPath returns the first service functions that frames[i] called, directly or through others. Closures of these functions are
// left out.
func (n *Namer) callPath(frames []tracefmt.FrameID, i int) (path CallPath) {
	k := 0
	last := n.syms.Frame(frames[i]).Func
	for i--; i >= 0 && k < len(path); i-- {
		frame := n.syms.Frame(frames[i])
		if frame.Func == last || !n.isServiceCode(frame) || n.isClosureOf(frames[i+1:], n.function(frame.Func).name) {
			continue
		}
		path[k], last = frame.Func, frame.Func
		n.rememberFrame(frame.Func, frames[i])
		k++
	}
	return path
}

// rememberFrame stores a frame of a function for FrameOf: of all frames seen, the one with the lowest line.
func (n *Namer) rememberFrame(fn tracefmt.StringID, f tracefmt.FrameID) {
	if old, ok := n.functionFrames[fn]; !ok || n.syms.Frame(f).Line < n.syms.Frame(old).Line {
		entry.Put(&n.functionFrames, fn, f)
	}
}

// FrameOf returns a frame of a function that was on a call path, or 0.
func (n *Namer) FrameOf(fn tracefmt.StringID) tracefmt.FrameID { return n.functionFrames[fn] }

// NewNamer returns a Namer for stacks of syms.
func NewNamer(syms *tracefmt.Symbols) *Namer { return &Namer{functionTable: functionTable{syms: syms}} }

// HandlerOf returns the handler of a stack. The result must not be changed and is valid until the next call.
func (n *Namer) HandlerOf(id tracefmt.StackID) *Handler {
	h := entry.GetOrGrow(&n.handlers, id)
	if isResolved := entry.GetOrGrow(&n.isResolved, id); !*isResolved {
		*h, *isResolved = n.findHandler(n.syms.Stack(id)), true
	}
	return h
}

// isServiceCode reports whether a frame is service code. The standard library, generated code and dependencies are not; files of
// dependencies have a version or a vendor directory in their path. If the service itself was built as a versioned module, only
// code in the main module's directory is service code.
func (n *Namer) isServiceCode(f tracefmt.Frame) bool {
	if n.function(f.Func).Has(knowledge.Stdlib) {
		return false
	}
	file := n.syms.String(f.File)
	if modules.IsGenerated(file) {
		return false
	}
	if n.mainModuleDir != "" {
		return strings.HasPrefix(file, n.mainModuleDir)
	}
	return !strings.Contains(file, "@v") && !strings.Contains(file, "/vendor/")
}

// FindMainModule learns the main module's directory from the frame of main.main, once that frame is known. It is needed only if
// the main module has a version. When it finds one, it discards cached handlers.
func (n *Namer) FindMainModule() {
	if n.mainModuleDir != "" || n.isMainUnversioned {
		return
	}
	main := n.syms.Lookup("main.main")
	if main == 0 {
		return
	}
	for id := 1; id < n.syms.Frames(); id++ {
		f := n.syms.Frame(tracefmt.FrameID(id))
		if f.Func != main {
			continue
		}
		file := n.syms.String(f.File)
		version := strings.LastIndex(file, "@v")
		if version < 0 {
			n.isMainUnversioned = true
			return
		}
		if end := strings.IndexByte(file[version:], '/'); end > 0 {
			n.mainModuleDir = file[:version+end+1]
			clear(n.isResolved)
		}
		return
	}
}

// findHandler decides which frame of a stack, innermost first, is the handler that names the request. In order of preference it
// is: the gRPC method; the innermost service function that a router or dispatcher called; a handler of a dependency; a handler of
// the standard library. The frame is 0 if the stack is in no handler.
func (n *Namer) findHandler(frames []tracefmt.FrameID) Handler {
	var named, foreign, plain Handler
	isInHandler, isTimeoutGoroutine := false, false
	rank := 0
	for i := len(frames) - 1; i >= 0; i-- { // from the outermost frame inwards
		f := n.syms.Frame(frames[i])
		fn := n.function(f.Func)
		named.IsObserver = named.IsObserver || fn.Has(knowledge.Observer)
		if fn.Has(knowledge.GRPCMethod) {
			key := f.Func
			base, _, closure := strings.Cut(fn.name, "_Handler.")
			if closure {
				key = n.syms.Lookup(base + "_Handler")
			}
			base = strings.TrimSuffix(base, "_Handler")
			named = Handler{Frame: frames[i], Key: key, Rank: 1 << 20}
			// The method has the name that the description gives it. Interceptors are frames in between.
			method := base[strings.LastIndexByte(base, '_')+1:]
			for j := i - 1; j >= 0; j-- {
				if inner := n.frameFunction(frames[j]); !inner.Has(knowledge.Stdlib) && !inner.Has(knowledge.GRPCMethod) &&
					strings.HasSuffix(inner.name, "."+method) {
					named.Frame, named.Rank = frames[j], 1<<21
					break
				}
			}
			return named
		}
		if fn.Has(knowledge.HandlerRoot) {
			isInHandler = true
			isTimeoutGoroutine = isTimeoutGoroutine || fn.Has(knowledge.TimeoutGoroutine)
			continue
		}
		if !isInHandler || i+1 >= len(frames) {
			continue
		}
		rank++
		caller := n.syms.Frame(frames[i+1])
		callerFunc := n.function(caller.Func)
		if callerFunc.Has(knowledge.GRPCPackage) && n.isServiceCode(f) && !n.hasGRPCMethod(frames[:i]) {
			return n.handWrittenGRPCMethod(frames, i)
		}
		candidate := Handler{Frame: frames[i], Key: f.Func, Rank: rank + 1<<10}
		switch {
		case fn.Has(knowledge.Stdlib) && fn.Has(knowledge.HandlerCaller):
			// A handler of the standard library, such as httputil.ReverseProxy.
			if plain.Frame == 0 && !fn.Has(knowledge.PassThroughHandler) {
				candidate.Rank = rank
				plain = candidate
			}
		case fn.Has(knowledge.Stdlib):
			if plain.Frame == 0 && callerFunc.Has(knowledge.Stdlib) && callerFunc.Has(knowledge.HandlerCaller) &&
				!callerFunc.Has(knowledge.HandlerLookup) {
				candidate.Rank = rank
				if fn.Has(knowledge.Runtime) { // a function of the runtime in which the handler waits
					candidate.Frame, candidate.Key = frames[i+1], caller.Func
				}
				plain = candidate
			}
		case n.isServiceCode(f):
			// A dispatcher or a library's router called it. A closure that service code passes to a library is no
			// handler.
			isCalledByRouter := !n.isServiceCode(caller) && (callerFunc.Has(knowledge.HandlerCaller) ||
				!callerFunc.Has(knowledge.Stdlib) && n.isRouterCall(frames[i+1:]))
			if (fn.Has(knowledge.HandlerCaller) || isCalledByRouter) && !n.isClosureOf(frames[i+1:], fn.name) {
				named = Handler{
					Frame: candidate.Frame, Key: candidate.Key, Rank: candidate.Rank, IsObserver: named.IsObserver, Path: n.callPath(frames, i),
				}
			}
		default:
			if callerFunc.Has(knowledge.Stdlib) && callerFunc.Has(knowledge.HandlerCaller) {
				foreign = candidate
				foreign.Rank = rank + 1<<5
			}
		}
	}
	best := named
	if best.Frame == 0 {
		best = foreign
	}
	if best.Frame == 0 {
		best = plain
	}
	best.IsObserver, best.IsTimeoutGoroutine = named.IsObserver, isTimeoutGoroutine
	return best
}

// isRouterCall reports whether the library that made the call outer[0] is a router: it is on the stack before the first service
// function. A library that the handler called, such as a retry loop, is not.
func (n *Namer) isRouterCall(outer []tracefmt.FrameID) bool {
	lib := libraryOf(n.frameFunction(outer[0]).name)
	hasServiceFrame := false
	for _, id := range outer {
		f := n.syms.Frame(id)
		switch fn := n.function(f.Func); {
		case fn.Has(knowledge.HandlerRoot):
			return !hasServiceFrame
		case n.isServiceCode(f):
			hasServiceFrame = true
		case hasServiceFrame && libraryOf(fn.name) == lib:
			return true
		}
	}
	return !hasServiceFrame
}

// libraryOf returns the first three path elements of a function's package, such as github.com/owner/repository, by which packages
// of one library are recognised.
func libraryOf(fn string) string {
	parts := strings.SplitN(stdlib.Package(fn), "/", 4)
	return strings.Join(parts[:min(len(parts), 3)], "/")
}

// hasGRPCMethod reports whether one of the frames is the generated function of a gRPC method.
func (n *Namer) hasGRPCMethod(frames []tracefmt.FrameID) bool {
	return slices.ContainsFunc(frames, func(f tracefmt.FrameID) bool { return n.frameFunction(f).Has(knowledge.GRPCMethod) })
}

// handWrittenGRPCMethod returns the handler of a gRPC method whose service description was written by hand, not generated.
// frames[i] is the function in the description, often one for all methods. The method is the exported method that this function,
// or its closure, calls; if there is none, the function itself.
func (n *Namer) handWrittenGRPCMethod(frames []tracefmt.FrameID, i int) Handler {
	adapter := n.syms.Frame(frames[i]).Func
	name := n.function(adapter).name
	h := Handler{Frame: frames[i], Key: adapter, Rank: 1 << 20}
	for j := i - 1; j >= 0; j-- {
		f := n.syms.Frame(frames[j])
		fn := n.function(f.Func).name
		caller := n.frameFunction(frames[j+1]).name
		if n.isServiceCode(f) && (caller == name || strings.HasPrefix(caller, name+".")) && isExportedMethod(fn) {
			return Handler{Frame: frames[j], Key: f.Func, Rank: 1 << 21, Path: n.callPath(frames, j)}
		}
	}
	return h
}

// isExportedMethod reports whether a function's name is that of a method with an exported name, and not of a closure.
func isExportedMethod(name string) bool {
	name = name[strings.LastIndexByte(name, '/')+1:]
	_, rest, _ := strings.Cut(name, ".")
	typ, method, ok := strings.Cut(rest, ".")
	return ok && typ != "" && method != "" && method[0] >= 'A' && method[0] <= 'Z' && !strings.Contains(method, ".")
}

// isClosureOf reports whether the function with this name is a closure of a function in outer.
func (n *Namer) isClosureOf(outer []tracefmt.FrameID, name string) bool {
	i := strings.LastIndex(name, ".func")
	if i < 0 {
		return false
	}
	return slices.ContainsFunc(outer, func(f tracefmt.FrameID) bool { return n.frameFunction(f).name == name[:i] })
}
