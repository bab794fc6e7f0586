package render

import (
	"fmt"
	"net/netip"
	"strings"
)

// nodesAtMost bounds how many nodes a row names.
const nodesAtMost = 3

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

// shortNode returns the name of a node without its domain.
func shortNode(name string) string {
	if _, err := netip.ParseAddr(name); err != nil {
		name, _, _ = strings.Cut(name, ".")
	}
	return name
}
