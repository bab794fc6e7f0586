// Package help reads the texts of commands from a file: how a command is used, what it is in a line, and its
// description and examples. It knows no command.
package help

import (
	"strings"

	"github.com/spf13/cobra"
)

// Command returns a command with the texts under its name: "== NAME", a line with its use, a line that says what it is,
// and paragraphs. Its examples begin after a line "Examples:".
func Command(texts, name string) *cobra.Command {
	_, text, _ := strings.Cut("\n"+texts, "\n== "+name+"\n")
	text, _, _ = strings.Cut(text, "\n== ")
	text, examples, _ := strings.Cut(text, "\nExamples:\n")
	head, long, _ := strings.Cut(text, "\n\n")
	use, short, _ := strings.Cut(strings.TrimSpace(head), "\n")
	return &cobra.Command{Use: use, Short: short, Long: strings.TrimSpace(long), Example: strings.TrimRight(examples, "\n")}
}
