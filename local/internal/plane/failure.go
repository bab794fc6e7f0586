package plane

import (
	"fmt"
	"strings"

	"lockstep.dev/lockstep/local/internal/process"
)

// tailLines is how much of a component's log an error carries.
const tailLines = 12

// failure is the error of a component that did not do what it was started for, with what it
// logged last.
func failure(l Layout, c Component, what string) error {
	tail := process.Tail(l.Log(c), tailLines)
	if len(tail) == 0 {
		return fmt.Errorf("%s %s\n  it wrote nothing to %s", c, what, l.Log(c))
	}
	return fmt.Errorf("%s %s\n  its last lines, from %s:\n    %s", c, what, l.Log(c), strings.Join(tail, "\n    "))
}

// errNoCluster is the error of every command but up and down in a directory without a cluster.
func errNoCluster(l Layout) error {
	return fmt.Errorf("no cluster in %q: bring one up with: lockstep-local up --dir %s", l.Dir, l.Dir)
}
