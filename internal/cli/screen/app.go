package screen

import (
	"strconv"
	"strings"
	"time"
)

// An Action is an action that a key requests from the program.
type Action int

// Actions.
const (
	NoAction Action = iota
	Quit
	Explain
	Save
	Diff
)

// An App is the contents of the screen. Only one goroutine may use it.
type App struct {
	panes      []Pane
	focus      int
	page       *page
	message    string
	messageEnd time.Time
	color      bool
}

// NewApp returns an App with the named services, without results.
func NewApp(names []string, color bool) *App {
	a := &App{color: color}
	for _, n := range names {
		p := Pane{Doing: "connecting"}
		p.Service = n
		a.panes = append(a.panes, p)
	}
	return a
}

// Pane returns the pane of a service, for changes.
func (a *App) Pane(i int) *Pane { return &a.panes[i] }

// Focus returns the service to which keys apply.
func (a *App) Focus() int { return a.focus }

// ShowMessage shows a message instead of the keys for some time.
func (a *App) ShowMessage(text string, now time.Time) {
	a.message, a.messageEnd = strings.Join(strings.Fields(text), " "), now.Add(8*time.Second)
}

// ShowText shows a text over the screen, which can be scrolled. It may contain colours of our own writers, and no other escape
// sequences.
func (a *App) ShowText(title, text string) {
	a.page = &page{title: title, text: strings.Split(strings.TrimRight(text, "\n"), "\n")}
}

const help = `e  explain the last look in full
s  save the last recording to a file in this directory
d  compare the last look with the one before, and the last three looks
   with those before them
tab, 1 to 9  the next service, or the one with that number
q, Ctrl-C  quit

While a text is shown: arrows, space, b, g and G move; q, Esc and Enter close it.

Each look is a short trace of the service (or what its flight recorder
holds). p50 and p99 are of the last look. If it has fewer than a hundred
requests, earlier looks of up to a minute are added. With ≤ there are
still fewer, and the number is the latency of the slowest request.
The bar is what the slow requests of the last look spent their time on,
the words name the largest part and its place. The line below has one
column per look, in the colour of the largest part.

A finding is new, or shows its age, or is gone; "3 of 5" means that it was
seen in 3 of the 5 looks since it first appeared.

The cost is an estimate: 100 ns for each event of the trace, over the
time between looks, as a share of the CPUs available to the service.
whylate looks less often to stay within the budget.`

// HandleKey changes the screen by a key, or returns the action that the key requests from the program, else NoAction.
func (a *App) HandleKey(k Key) Action {
	if a.page != nil {
		switch k {
		case "q", Esc, Enter, CtrlC:
			a.page = nil
			if k == CtrlC {
				return Quit
			}
		default:
			a.page.move(k)
		}
		return NoAction
	}
	switch k {
	case "q", CtrlC:
		return Quit
	case "e", Enter:
		return Explain
	case "s":
		return Save
	case "d":
		return Diff
	case "?", "h":
		a.ShowText("whylate watch", help)
	case Tab:
		a.focus = (a.focus + 1) % len(a.panes)
	default:
		if len(k) == 1 && k[0] >= '1' && int(k[0]-'1') < len(a.panes) {
			a.focus = int(k[0] - '1')
		}
	}
	return NoAction
}

// A page is a scrolled text.
type page struct {
	title     string
	text      []string
	firstLine int // the first line shown, of those of the last width
	lines     int // of the last drawing: of the text, and of the screen
	room      int
}

// draw returns the page as at most lines lines of at most columns columns: the visible part of the text, and the foot as the
// last line. It remembers the size for move.
func (p *page) draw(columns, lines int, color bool) []string {
	var all []string
	for _, t := range p.text {
		all = append(all, wrap(t, columns)...)
	}
	p.lines, p.room = len(all), max(lines-1, 1)
	p.clamp()
	out := append([]string(nil), all[p.firstLine:min(p.firstLine+p.room, len(all))]...)
	for len(out) < lines-1 {
		out = append(out, "")
	}
	foot := newLine(columns, color).add(reverse, " "+p.title+" ")
	if p.lines > p.room {
		foot.add(dim, "  "+percent(p.firstLine+p.room, p.lines))
	}
	return append(out, foot.add(bold, "  q").add(dim, " back").add(bold, "  space ↑ ↓").add(dim, " move").String())[:min(len(out)+1, lines)]
}

func percent(n, total int) string { return strconv.Itoa(min(100*n/max(total, 1), 100)) + "%" }

func (p *page) clamp() { p.firstLine = max(min(p.firstLine, p.lines-p.room), 0) }

// move scrolls the page by a key: a line, a screen, or to the begin or end. Other keys do nothing.
func (p *page) move(k Key) {
	switch k {
	case Down, "j":
		p.firstLine++
	case Up, "k":
		p.firstLine--
	case Space, PageDown, "f":
		p.firstLine += max(p.room-2, 1)
	case PageUp, "b":
		p.firstLine -= max(p.room-2, 1)
	case Home, "g":
		p.firstLine = 0
	case End, "G":
		p.firstLine = p.lines
	}
	p.clamp()
}
