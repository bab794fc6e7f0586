package report

import (
	"fmt"
	"net/netip"
	"strings"
	"unicode/utf8"
)

const (
	// nodesAtMost bounds how many nodes a row names.
	nodesAtMost = 3
	// nodeNameAtMost is how many characters of a node's name are shown.
	nodeNameAtMost = 20
)

// nodes names the first few nodes and counts the rest.
func nodes(names []string) string {
	var short []string
	for _, name := range names[:min(len(names), nodesAtMost)] {
		short = append(short, shortNode(name))
	}
	text := dash(strings.Join(short, ","))
	if more := len(names) - nodesAtMost; more > 0 {
		text += fmt.Sprintf(" +%d", more)
	}
	return text
}

// shortNode leaves out a node's domain, and the head of a name that is still too
// long: names of one pool differ at the end.
func shortNode(name string) string {
	if _, err := netip.ParseAddr(name); err != nil {
		name, _, _ = strings.Cut(name, ".")
	}
	if length := utf8.RuneCountInString(name); length > nodeNameAtMost {
		name = "…" + string([]rune(name)[length-nodeNameAtMost+1:])
	}
	return name
}
