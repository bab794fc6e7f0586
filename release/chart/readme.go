package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// The table of values stands between these lines of README.md.
const begin, end = "<!-- values -->\n", "<!-- end of values -->\n"

var table = regexp.MustCompile("(?s)" + begin + ".*" + end)

// WithTable returns a README with the table of values.
func WithTable(readme []byte, all []Value) ([]byte, error) {
	if !table.Match(readme) {
		return nil, fmt.Errorf("%s: want the lines %q and %q", readmeFile, begin, end)
	}
	rows := bytes.NewBufferString(begin + "| value | default | what it is |\n| --- | --- | --- |\n")
	for _, v := range Leaves(all) {
		var value any
		if err := v.Default.Decode(&value); err != nil {
			return nil, err
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(rows, "| `%s` | `%s` | %s |\n", v.Path, text, strings.ReplaceAll(v.described(), "|", `\|`))
	}
	rows.WriteString(end)
	return table.ReplaceAllLiteral(readme, rows.Bytes()), nil
}

// described is the text of a value with the choices that it has.
func (v Value) described() string {
	choices, found := v.Marks["enum"]
	if !found {
		return v.Text
	}
	choices = "`" + strings.ReplaceAll(choices, ",", "`, `") + "`"
	return v.Text + " One of " + strings.ReplaceAll(choices, "``", "empty") + "."
}
