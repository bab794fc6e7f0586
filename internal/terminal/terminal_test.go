package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"lockstep.dev/lockstep/test/expect"
)

func TestEscape(t *testing.T) {
	for name, tt := range map[string]struct{ text, want string }{
		"plain text":              {"a-0 waits:\t\"é 漢 ×\"\n", "a-0 waits:\t\"é 漢 ×\"\n"},
		"colours and cursor":      {"\x1b[2J\x1b]0;t\a\r\b\x7f", `\u001b[2J\u001b]0;t\u0007\u000d\u0008\u007f`},
		"C1 controls":             {"\u009b2J\u0085", `\u009b2J\u0085`},
		"order of writing":        {"\u202a\u202e\u2066\u2069\u200e\u200f\u061c", `\u202a\u202e\u2066\u2069\u200e\u200f\u061c`},
		"no width":                {"a\u200bb\u200c\u200d\u2060\ufeff\u00ad", `a\u200bb\u200c\u200d\u2060\ufeff\u00ad`},
		"other ends of lines":     {"\u2028\u2029\v\f", `\u2028\u2029\u000b\u000c`},
		"other spaces":            {"\u00a0\u3000", `\u00a0\u3000`},
		"tags":                    {"\U000e0001\U000e0061", `\udb40\udc01\udb40\udc61`},
		"letters without a glyph": {"\u115f\u3164\uffa0\u034f", `\u115f\u3164\uffa0\u034f`},
		"selectors of variants":   {"\ufe0f\U000e0100", `\ufe0f\udb40\udd00`},
		"private use":             {"\ue000", `\ue000`},
		"not UTF-8":               {"a\x9b2J", "a\ufffd2J"},
	} {
		var out bytes.Buffer
		n, err := Writer(&out).Write([]byte(tt.text))
		expect.That(t, out.String() == tt.want && n == len(tt.text) && err == nil,
			"%s: got %q, %d, %v; want %q", name, out.String(), n, err, tt.want)
	}
}

// Nothing invisible passes, and JSON says the same after it.
func FuzzEscape(f *testing.F) {
	f.Add("a\u202eb\x1b[0m\U000e0061\\\"\n")
	f.Add("\x9b\xff\xf0\x9f")
	f.Fuzz(func(t *testing.T, text string) {
		escaped := Escape(text)
		for _, r := range escaped {
			if r != '\n' && r != '\t' && !isShown(r) {
				t.Fatalf("%U passes in %q", r, escaped)
			}
		}
		again := Escape(escaped)
		expect.Must(t, again == escaped, "%q became %q", escaped, again)
		expect.Must(t, len(escaped) <= 6*len(text), "%d bytes became %d", len(text), len(escaped))
		encoded, _ := json.Marshal(text)
		var want, got string
		expect.OK(t, json.Unmarshal(encoded, &want))
		err := json.Unmarshal([]byte(Escape(string(encoded))), &got)
		expect.Must(t, err == nil && got == want, "%s became %s: %v", encoded, fmt.Sprint(Escape(string(encoded))), err)
	})
}

func TestATextFitsTheScreen(t *testing.T) {
	for name, tt := range map[string]struct {
		text          string
		width, height int
		want          string
	}{
		"room for all":       {"ab\ncd\n", 2, 3, "ab\ncd\n"},
		"too wide":           {"abc\nd\n", 2, 3, "ab\nd\n"},
		"too high":           {"1\n2\n3\n4\n", 50, 4, "1\n2\n2 more lines are hidden: make the terminal higher\n"},
		"too high, too wide": {"1\n2\n3\n4\n", 12, 3, "1\n3 more lines\n"},
		"one row":            {"1\n2\n", 6, 1, "2 more\n"},
		"wide characters":    {"漢字漢字\n", 5, 9, "漢字\n"},
		"lines of a tree":    {"├─ a…\n", 5, 9, "├─ a…\n"},
		"colours":            {"\x1b[31mab\x1b[0m c\n", 4, 9, "\x1b[31mab\x1b[0m c\n"},
		"a colour that ends": {"\x1b[31mabc\x1b[0m\n", 2, 9, "\x1b[31mab\x1b[0m\n"},
	} {
		expect.Equalf(t, tt.want, fit(tt.text, tt.width, tt.height), "%s", name)
	}
	expect.Equalf(t, "abc", Fit(&bytes.Buffer{}, "abc"), "without a screen")
}
