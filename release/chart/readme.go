package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// The table of values stands between these lines of README.md.
const begin, end = "<!-- values -->\n", "<!-- end of values -->\n"

// WithTable returns a README with the table of values.
func WithTable(readme []byte, all []Value) ([]byte, error) {
	before, rest, found := bytes.Cut(readme, []byte(begin))
	_, after, closes := bytes.Cut(rest, []byte(end))
	if !found || !closes {
		return nil, fmt.Errorf("README.md: want the lines %q and %q", begin, end)
	}
	table := &bytes.Buffer{}
	table.WriteString("| value | default | what it is |\n| --- | --- | --- |\n")
	for _, v := range Leaves(all) {
		value, err := v.json()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(table, "| `%s` | `%s` | %s |\n", v.Path, value, strings.ReplaceAll(v.told(), "|", `\|`))
	}
	return bytes.Join([][]byte{before, []byte(begin), table.Bytes(), []byte(end), after}, nil), nil
}

func (v Value) json() (string, error) {
	var value any
	if err := v.Default.Decode(&value); err != nil {
		return "", err
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// told is the text of a value with the choices that it has.
func (v Value) told() string {
	choices := strings.Split(v.Marks["enum"], ",")
	if len(choices) < 2 {
		return v.Text
	}
	for i, choice := range choices {
		choices[i] = fmt.Sprintf("`%s`", choice)
		if choice == "" {
			choices[i] = "empty"
		}
	}
	return v.Text + " One of " + strings.Join(choices, ", ") + "."
}
