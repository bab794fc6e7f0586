package chart

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// The table of values stands between these lines of README.md.
const begin, end = "<!-- values -->\n", "<!-- end of values -->\n"

var table = regexp.MustCompile("(?s)" + begin + ".*" + end)

// withTable returns a README with the table of values.
func withTable(t *testing.T, readme []byte, all []value) []byte {
	t.Helper()
	if !table.Match(readme) {
		t.Fatalf("README.md: want the lines %q and %q", begin, end)
	}
	rows := []byte(begin + "| value | default | what it is |\n| --- | --- | --- |\n")
	for _, v := range leaves(all) {
		var byDefault any
		must(t, v.node.Decode(&byDefault))
		text, err := json.Marshal(byDefault)
		must(t, err)
		rows = fmt.Appendf(rows, "| `%s` | `%s` | %s |\n", v.path, text, strings.ReplaceAll(v.described(), "|", `\|`))
	}
	return table.ReplaceAllLiteral(readme, append(rows, end...))
}

// described is the text of a value with the choices that it has.
func (v value) described() string {
	choices, found := v.marks["enum"]
	if !found {
		return v.text
	}
	choices = "`" + strings.ReplaceAll(choices, ",", "`, `") + "`"
	return v.text + " One of " + strings.ReplaceAll(choices, "``", "empty") + "."
}
