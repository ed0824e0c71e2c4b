package browser

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"

	"github.com/whylate/whylate/internal/testing/check"
	"github.com/whylate/whylate/report"

	"github.com/chromedp/chromedp"
)

// tabStops lists all visible elements that a pointer can use, and numbers them. Parts of pictures have keys instead.
const tabStops = `(() => {
	let n = 0;
	return [...document.querySelectorAll('a[href], button, select, input, textarea, summary, [tabindex="0"]')].filter(e => e.checkVisibility() && !e.disabled).map(e => (e.dataset.stop = String(n++), e.tagName + '#' + e.id + '.' + (e.getAttribute('class') || '') + ' ' + e.textContent.slice(0, 30)));
})()`

// focusedElement returns the number of the focused element, and whether its focus is visible.
const focusedElement = `(() => {
	const e = document.activeElement, style = getComputedStyle(e), label = e.closest('label');
	const outlined = s => s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2 && s.outlineColor !== 'rgba(0, 0, 0, 0)';
	return { Stop: e.dataset.stop === undefined ? -1 : +e.dataset.stop, Seen: outlined(style) || !!label && outlined(getComputedStyle(label)), What: e.tagName + '.' + (e.getAttribute('class') || '') };
})()`

// TestEverythingByKeyboard: the tab key reaches every usable element of a page, and the focus is always visible.
func TestEverythingByKeyboard(t *testing.T) {
	browser := chromium(t)
	for name, r := range map[string]*report.Report{"orders": ordersReport(t), "tso": readSample(t, "tso"), "none": readSample(t, "none")} {
		p := open(t, browser, r, 1280, false, "")
		if all := p.checkTabKey(name); len(all) < 12 {
			t.Errorf("%s: only %d elements are usable: %q", name, len(all), all)
		}
		p.close()
	}
}

// checkTabKey moves through a page with the tab key, and returns the usable elements.
func (p *tab) checkTabKey(name string) []string {
	p.t.Helper()
	all := evaluate[[]string](p, tabStops)
	reached := map[int]bool{}
	for range len(all) + 5 {
		p.press("\t")
		focus := evaluate[struct {
			Stop int
			Seen bool
			What string
		}](p, focusedElement)
		if focus.Stop < 0 {
			continue // the browser's own frame
		}
		if reached[focus.Stop] {
			break
		}
		reached[focus.Stop] = true
		if !focus.Seen {
			p.t.Errorf("%s: the focus of %s is not visible", name, all[focus.Stop])
		}
	}
	for i, stop := range all {
		if !reached[i] {
			p.t.Errorf("%s: the tab key does not reach %s", name, stop)
		}
	}
	return all
}

// TestDocumentedKeys: every key in the page's list has an effect.
func TestDocumentedKeys(t *testing.T) {
	browser := chromium(t)
	p := open(t, browser, ordersReport(t), 1280, false, "")
	defer p.close()
	listed := evaluate[[]string](p, `[...document.querySelectorAll('#help kbd')].map(k => k.textContent)`)
	state := func() string {
		return evaluate[string](p, `JSON.stringify([location.hash, scrollY, document.activeElement.className, document.activeElement.textContent.slice(0, 40), document.documentElement.dataset.theme, document.getElementById('help').open,
			[...document.querySelectorAll('#requests .seg.selected')].map(e => e.dataset.seg), [...document.querySelectorAll('#requests .waterfall .seg rect.path')].slice(0, 3).map(e => e.getAttribute('x') + ' ' + e.getAttribute('width')), document.querySelectorAll('#requests .waterfall .seg').length, document.querySelector('.box.selected')?.textContent])`)
	}
	code := map[string]string{"←": "\u0302", "→": "\u0303", "−": "-", "Enter": "\r", "Esc": "\u001b"}
	done := map[string]bool{}
	for _, k := range listed {
		// Each key is pressed where it has an effect: in the waterfall, near the middle of the path, zoomed in a little.
		p.press("w", "0", code["→"], code["→"], code["→"], "+", "+")
		switch k {
		case "w":
			p.press("f")
		case "s":
			p.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#flame .flame').focus()`))
			for !evaluate[bool](p, `!!document.getElementById('sandwich')`) {
				p.press(arrowDown)
			}
		case "g", "f", "0":
		case "[":
			p.press("]")
		}
		before := state()
		key := k
		if c, ok := code[k]; ok {
			key = c
		}
		p.press(key)
		if after := state(); after == before {
			t.Errorf("%s does nothing: %s", k, after)
		}
		done[k] = true
		if evaluate[bool](p, `document.getElementById('help').open`) {
			evaluate[bool](p, `(document.getElementById('help').close(), true)`)
		}
	}
	for _, k := range []string{"n", "p", "←", "→", "+", "−", "0", "[", "]", "Enter", "Esc", "g", "w", "f", "t", "?"} {
		check.True(t, done[k], "the page does not document %s; it lists %s", k, strings.Join(listed, " "))
	}
}

// TestViolationsAreSeen: a tab records each kind of violation, so that the other tests see it.
func TestViolationsAreSeen(t *testing.T) {
	browser := chromium(t)
	for kind, script := range map[string]string{
		"request":   `fetch('http://127.0.0.1:9/x').catch(() => 0).then(() => true)`,
		"violation": `(document.body.append(Object.assign(document.createElement('script'), { textContent: '1' })), true)`,
		"console":   `(console.error('x'), true)`,
		"exception": `(setTimeout(() => { throw new Error('x'); }), true)`,
	} {
		p := open(t, browser, singleSegmentReport(), 1280, false, "")
		evaluate[bool](p, `(`+script+` , true)`)
		p.settle()
		p.settle()
		p.mu.Lock()
		violations := slices.Clone(p.violations)
		p.mu.Unlock()
		check.True(t, len(violations) != 0, "%s: it is not recorded", kind)
	}
}

// TestPrintStyle shows a page as printed: on white, at the width of a sheet, without the parts that only work on a screen.
func TestPrintStyle(t *testing.T) {
	browser := chromium(t)
	p := open(t, browser, ordersReport(t), 794, true, "")
	defer p.close()
	p.run(command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print", Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}))
	p.settle()
	p.checkAppearance(794)
	if got := evaluate[string](p, `getComputedStyle(document.body).backgroundColor`); got != "rgb(251, 251, 250)" && got != "rgb(255, 255, 255)" {
		t.Errorf("a page printed in a dark theme has a background of %s", got)
	}
	for _, selector := range []string{"nav", ".tools", "button.how", "#theme"} {
		check.False(t, evaluate[bool](p, `[...document.querySelectorAll('`+selector+`')].some(e => e.checkVisibility())`), "%s is printed", selector)
	}
	p.screenshot("orders-print")
}

// TestGlossary opens the glossary from the list of keys.
func TestGlossary(t *testing.T) {
	browser := chromium(t)
	r := readSample(t, "tso")
	start := time.Date(2026, 11, 25, 3, 4, 5, 0, time.UTC)
	r.Input.Start = &start
	p := open(t, browser, r, 1000, false, "")
	defer p.close()
	p.press("?")
	p.waitUntil(`document.getElementById('help').open`)
	p.run(chromedp.Evaluate[chromedp.Void](`document.getElementById('towords').focus()`))
	p.press("\r")
	p.waitUntil(`document.getElementById('glossary').open && !document.getElementById('help').open && document.activeElement.closest('#glossary')`)
	if got := evaluate[[]string](p, `[...document.querySelectorAll('#glossary dt')].map(e => e.textContent)`); len(got) < 20 {
		t.Errorf("the glossary has %q", got)
	}
	if got := evaluate[string](p, `document.querySelector('.title .dim').textContent`); !strings.Contains(got, "at 2026-11-25 03:04:05 UTC") || !strings.Contains(got, "GOMAXPROCS") {
		t.Errorf("the header says %q", got)
	}
}
