package plane

import (
	"fmt"
	"strings"

	"lockstep.dev/lockstep/local/internal/process"
)

// tailLines is how much of a component's log an error carries.
const tailLines = 12

// failure is a component that did not do what it was started for, with what it
// said last.
type failure struct {
	component Component
	what      string // what happened to it
	log       string // path
	tail      []string
}

func newFailure(l Layout, c Component, what string) *failure {
	f := &failure{component: c, what: what, log: l.Log(c)}
	f.tail, _ = process.Tail(f.log, tailLines) // an unreadable log must not hide what happened
	return f
}

func (f *failure) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s\n", f.component, f.what)
	if len(f.tail) == 0 {
		fmt.Fprintf(&text, "  it wrote nothing to %s", f.log)
		return text.String()
	}
	fmt.Fprintf(&text, "  its last lines, from %s:", f.log)
	for _, line := range f.tail {
		fmt.Fprintf(&text, "\n    %s", line)
	}
	return text.String()
}

// errNoCluster is what every command but up and down says of a directory
// without a cluster.
func errNoCluster(l Layout) error {
	return fmt.Errorf("no cluster in %q: bring one up with: lockstep-local up --dir %s", l.Dir, l.Dir)
}
