package report

import (
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
	return slices.Concat(edits, compareRest(from, to), tail)
}

// compareRest finds a longest common subsequence of lines.
func compareRest(from, to []string) []lineEdit {
	common := make([][]int, len(from)+1)
	for i := range common {
		common[i] = make([]int, len(to)+1)
	}
	for i := len(from) - 1; i >= 0; i-- {
		for j := len(to) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if from[i] == to[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var edits []lineEdit
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		switch {
		case i < len(from) && j < len(to) && from[i] == to[j]:
			edits = append(edits, lineEdit{' ', from[i]})
			i, j = i+1, j+1
		case j == len(to) || i < len(from) && common[i+1][j] >= common[i][j+1]:
			edits = append(edits, lineEdit{'-', from[i]})
			i++
		default:
			edits = append(edits, lineEdit{'+', to[j]})
			j++
		}
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
