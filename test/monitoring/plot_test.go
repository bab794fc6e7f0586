package monitoring

import (
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
)

// chart is one panel as it is plotted.
type chart struct {
	title string
	lines []line
}

type line struct {
	legend string
	points []model.SamplePair
}

var labelOf = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend fills the labels of a series into the text of its panel.
func legend(format string, labels model.Metric) string {
	return labelOf.ReplaceAllStringFunc(format, func(name string) string {
		return string(labels[model.LabelName(strings.Trim(name, "{}"))])
	})
}

const (
	chartWidth, chartHeight = 430, 200
	left, top, right, low   = 46, 26, 10, 60
	perRow                  = 2
	named                   = 5 // lines that the legend names
)

var colours = []string{"#3274d9", "#e0752d", "#3f9142", "#c4162a", "#8f3bb8", "#8a6d1d", "#0a8f8f", "#777777"}

// plot writes charts as an SVG picture.
func plot(path, title string, charts []chart) error {
	rows := (len(charts) + perRow - 1) / perRow
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n",
		perRow*chartWidth, rows*chartHeight+24)
	b.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	text(&b, 8, 16, "#222222", title+", plotted from the same queries")
	for i, c := range charts {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`+"\n", i%perRow*chartWidth, i/perRow*chartHeight+24)
		c.draw(&b)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

func text(to io.Writer, x, y int, colour, words string) {
	fmt.Fprintf(to, `<text x="%d" y="%d" fill="%s">`, x, y, colour)
	_ = xml.EscapeText(to, []byte(words))
	fmt.Fprintln(to, `</text>`)
}

// draw draws a chart with its frame, its lines and their legend.
func (c chart) draw(b *strings.Builder) {
	first, last, highest := c.extent()
	width, height := float64(chartWidth-left-right), float64(chartHeight-top-low)
	text(b, left, 16, "#222222", c.title)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.0f" height="%.0f" fill="none" stroke="#cccccc"/>`+"\n", left, top, width, height)
	text(b, 4, top+9, "#555555", fmt.Sprintf("%.3g", highest))
	text(b, 4, chartHeight-low, "#555555", "0")
	if len(c.lines) == 0 {
		text(b, left+8, top+40, "#777777", "no data")
	}
	for i, l := range c.seen() {
		colour := colours[i%len(colours)]
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, colour)
		for _, p := range l.points {
			fmt.Fprintf(b, "%.0f,%.0f ", left+width*(float64(p.Timestamp)-first)/max(1, last-first), top+height*(1-float64(p.Value)/highest))
		}
		b.WriteString(`"/>` + "\n")
		switch {
		case i < named:
			text(b, left+i%2*190, chartHeight-low+15+i/2*14, colour, l.legend)
		case i == named:
			text(b, left+i%2*190, chartHeight-low+15+i/2*14, "#555555", fmt.Sprintf("and %d more", len(c.seen())-named))
		}
	}
}

// seen returns the lines that are not 0 all the time, or all lines where none is.
func (c chart) seen() []line {
	seen := slices.DeleteFunc(slices.Clone(c.lines), func(l line) bool {
		return !slices.ContainsFunc(l.points, func(p model.SamplePair) bool { return p.Value != 0 })
	})
	if len(seen) == 0 {
		return c.lines
	}
	return seen
}

// extent is the time and the highest value that a chart shows.
func (c chart) extent() (first, last, highest float64) {
	for _, l := range c.lines {
		for _, p := range l.points {
			at := float64(p.Timestamp)
			if first == 0 || at < first {
				first = at
			}
			last, highest = max(last, at), max(highest, float64(p.Value))
		}
	}
	if highest == 0 {
		highest = 1
	}
	return first, last, highest
}
