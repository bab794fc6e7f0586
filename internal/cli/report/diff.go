package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// contextLines is how many equal lines stand around a difference.
const contextLines = 3

// unified is the difference of two texts as diff -u writes it, or empty.
func unified(fromName, toName, from, to string) string {
	edits := compare(lines(from), lines(to))
	hunks := hunksOf(edits)
	if len(hunks) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n", fromName, toName)
	for _, hunk := range hunks {
		writeHunk(&out, edits, hunk)
	}
	return out.String()
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// lineEdit is one line of a comparison: ' ' is in both, '-' only in the first,
// '+' only in the second.
type lineEdit struct {
	mark byte
	line string
}

// compare finds the fewest lines to take away and to add. What both begin and end
// with is set aside: templates are long, and their changes are short.
func compare(from, to []string) []lineEdit {
	var edits, tail []lineEdit
	for len(from) > 0 && len(to) > 0 && from[0] == to[0] {
		edits = append(edits, lineEdit{' ', from[0]})
		from, to = from[1:], to[1:]
	}
	for len(from) > 0 && len(to) > 0 && from[len(from)-1] == to[len(to)-1] {
		tail = append(tail, lineEdit{' ', from[len(from)-1]})
		from, to = from[:len(from)-1], to[:len(to)-1]
	}
	slices.Reverse(tail)
	return slices.Concat(edits, removedFirst(compareRest(from, to)), tail)
}

// compareRest finds a longest common subsequence of lines in memory that grows with
// the lines, not with their product: it halves the first text, finds where a longest
// one parts the second, and compares the halves.
func compareRest(from, to []string) []lineEdit {
	switch {
	case len(from) == 0:
		return marked('+', to)
	case len(to) == 0:
		return marked('-', from)
	case len(from) == 1:
		return compareLine(from[0], to)
	}
	half := len(from) / 2
	part := parting(from[:half], from[half:], to)
	return append(compareRest(from[:half], to[:part]), compareRest(from[half:], to[part:])...)
}

func marked(mark byte, lines []string) []lineEdit {
	edits := make([]lineEdit, len(lines))
	for i, line := range lines {
		edits[i] = lineEdit{mark, line}
	}
	return edits
}

func compareLine(line string, to []string) []lineEdit {
	at := slices.Index(to, line)
	if at < 0 {
		return append(marked('-', []string{line}), marked('+', to)...)
	}
	return slices.Concat(marked('+', to[:at]), marked(' ', to[at:at+1]), marked('+', to[at+1:]))
}

// parting is where to parts so that its beginning has as much as possible in common
// with the first half, and its end with the second.
func parting(first, second, to []string) int {
	beginning := inCommon(first, to)
	slices.Reverse(second)
	slices.Reverse(to)
	end := inCommon(second, to)
	slices.Reverse(second)
	slices.Reverse(to)
	part := 0
	for i := range beginning {
		if beginning[i]+end[len(to)-i] > beginning[part]+end[len(to)-part] {
			part = i
		}
	}
	return part
}

// inCommon is the length of a longest common subsequence of lines with each beginning
// of to.
func inCommon(lines, to []string) []int {
	row := make([]int, len(to)+1)
	for _, line := range lines {
		before := 0 // of the row above, one to the left
		for j := range to {
			above := row[j+1]
			if row[j+1] = max(above, row[j]); line == to[j] {
				row[j+1] = before + 1
			}
			before = above
		}
	}
	return row
}

// removedFirst has what is taken away come before what is added in its place.
func removedFirst(edits []lineEdit) []lineEdit {
	for i := 0; i < len(edits); {
		end := i
		for end < len(edits) && (edits[end].mark == ' ') == (edits[i].mark == ' ') {
			end++
		}
		slices.SortStableFunc(edits[i:end], func(a, b lineEdit) int { return cmp.Compare(b.mark, a.mark) }) // '-' is after '+'
		i = end
	}
	return edits
}

// hunk is a stretch of edits, from first up to but not including end.
type hunk struct{ first, end int }

// hunksOf gathers what differs with its context; what nearly touches is one.
func hunksOf(edits []lineEdit) []hunk {
	var all []hunk
	for i := range edits {
		if edits[i].mark == ' ' {
			continue
		}
		first, end := max(0, i-contextLines), min(len(edits), i+contextLines+1)
		if last := len(all) - 1; last >= 0 && first <= all[last].end {
			all[last].end = end
			continue
		}
		all = append(all, hunk{first, end})
	}
	return all
}

func writeHunk(out *strings.Builder, edits []lineEdit, h hunk) {
	before, after := 1, 1
	for _, e := range edits[:h.first] {
		before, after = before+in(e, '-'), after+in(e, '+')
	}
	var removed, added int
	for _, e := range edits[h.first:h.end] {
		removed, added = removed+in(e, '-'), added+in(e, '+')
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(before, removed), span(after, added))
	for _, e := range edits[h.first:h.end] {
		fmt.Fprintf(out, "%c%s\n", e.mark, e.line)
	}
}

// in is 1 for a line that is in the text whose own lines bear the mark.
func in(e lineEdit, mark byte) int {
	if e.mark == ' ' || e.mark == mark {
		return 1
	}
	return 0
}

// span is where lines begin and how many there are, as diff -u writes it.
func span(first, count int) string {
	if count == 0 {
		first-- // the line before which there are none
	}
	if count == 1 {
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d,%d", first, count)
}
