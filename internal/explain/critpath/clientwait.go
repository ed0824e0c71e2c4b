package critpath

import (
	"github.com/whylate/whylate/internal/explain/entry"
	"github.com/whylate/whylate/internal/knowledge"
	"github.com/whylate/whylate/internal/trace/tracefmt"
)

// rolesOf returns the union of the knowledge roles of the functions on a stack, cached. It adds the role ClientWait if several
// functions together show that the stack waits for a client: in a handshake, a header or a response.
func (w *Walker) rolesOf(id tracefmt.StackID) (roles knowledge.Roles) {
	cached := entry.GetOrGrow(&w.stackRoles, id)
	if *cached != (knowledge.Roles{}) {
		return *cached
	}
	for _, f := range w.symbols.Stack(id) {
		function := w.functions.Of(w.symbols.Frame(f).Func)
		if function.Has(knowledge.Once) && roles.Has(knowledge.NonStdlib) {
			break // the function passed to Once.Do has its own wait
		}
		roles = roles.Union(function)
	}
	isHandler := roles.Has(knowledge.ServerHandler)
	if roles.Has(knowledge.HTTP1Connection) && !isHandler || isHandler && roles.Has(knowledge.WebSocketConnection) || roles.Has(knowledge.ResponseCopy) && roles.Has(knowledge.SocketWrite) {
		roles = roles.Union(knowledge.SetOf(knowledge.ClientWait))
	}
	*cached = roles
	return roles
}
