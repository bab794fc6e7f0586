// Command bench measures Lockstep on the local control plane against the floor: the same pods as
// bare StatefulSets, which the bench creates in the same run.
//
// It knows what a user can see, and what the system reports about the process of the operator. It
// refuses to know the internals of the operator.
//
//	make bench                                         # all scenarios: half an hour on two cores, longer if they are shared
//	make bench BENCHFLAGS="--scenario create-100x8"    # one scenario; may be given several times
//	make bench BENCHFLAGS="--against PROGRAM --repeat 9"    # two versions in turn
//
// The bench compares the figures with the targets of budget.yaml. A run that did not reach its load
// is invalid.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"

	flag "github.com/spf13/pflag"

	"lockstep.dev/lockstep/test/drill"
)

// settings are the options of a run.
type settings struct {
	scenarios []string
	repeat    int
	nodes     int
	qps       int
	budget    string
	pprof     string
	against   string
	config    string
	list      bool
}

func main() {
	if os.Getenv(drill.ReaperEnv) != "" {
		drill.Exit(drill.Reap(os.Stdin))
	}
	if os.Getenv("LOCKSTEP_BIN") == "" {
		_ = os.Setenv("LOCKSTEP_BIN", "bin") // the bench runs in the directory of the module
	}
	s := settings{}
	flag.StringSliceVar(&s.scenarios, "scenario", nil, "`name` of a scenario to run; all without")
	flag.IntVar(&s.repeat, "repeat", 1, "how often each scenario is run; the median counts")
	flag.IntVar(&s.nodes, "nodes", 50, "simulated nodes")
	flag.IntVar(&s.qps, "kcm-qps", 200, "queries per second of the client of the controller manager; its burst is half as much again")
	flag.StringVar(&s.budget, "budget", "test/bench/budget.yaml", "`file` to compare with; empty compares with nothing")
	flag.StringVar(&s.pprof, "pprof-bind-address", "", "`address` on which the operator serves profiles to go tool pprof")
	flag.StringVar(&s.against, "against", "", "lockstep `program` of another version: both run "+inTurn+" alone, in turn, and the floor does not")
	flag.StringVar(&s.config, "config", "", "`file` with a Configuration of the operator")
	flag.BoolVar(&s.list, "list", false, "list the scenarios and end")
	flag.Parse()
	if s.list {
		for _, one := range scenarios {
			fmt.Printf("%-18s %s\n", one.name, one.about)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, s)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	os.Exit(codeOf(err))
}

// codeOf returns the exit code: 2 for an invalid run, which did not reach its load, and 1 for every
// other error, missed targets included.
func codeOf(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInvalid):
		return 2
	}
	return 1
}

// run runs the chosen scenarios on a new control plane.
func run(ctx context.Context, s settings) (err error) {
	if s.against != "" {
		s.scenarios = []string{inTurn}
		if s.against, err = exec.LookPath(s.against); err != nil {
			return fmt.Errorf("--against names no program: %w", err)
		}
	}
	chosen, err := choose(s.scenarios)
	if err != nil {
		return err
	}
	budget, err := readBudget(s.budget)
	if err != nil {
		return err
	}
	return drill.Run(func(dir string, reaper *drill.Reaper) error {
		cold := !slices.ContainsFunc(chosen, func(one scenario) bool { return !one.cold })
		b, err := raise(ctx, dir, reaper, s, cold)
		if err != nil {
			return err
		}
		fmt.Println(s.heading())
		return b.measureAll(chosen, s.repeat, budget)
	})
}

// measureAll prints the figures of scenarios, and returns an error for each that misses its target.
func (b *bed) measureAll(chosen []scenario, repeat int, budget *budget) error {
	var failed, missed []error
	for i, one := range chosen {
		figures, err := b.measure(one, repeat, i == len(chosen)-1)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", one.name, err))
			fmt.Printf("%s: %v\n", one.name, err)
		}
		missed = append(missed, budget.print(os.Stdout, figures))
	}
	return errors.Join(append(failed, missed...)...)
}

// inTurn is the scenario that can be run by two versions in turn.
const inTurn = "roll-100x8"

// choose returns the scenarios with the given names, in the order of the table.
func choose(wanted []string) (chosen []scenario, err error) {
	chosen = slices.DeleteFunc(slices.Clone(scenarios), func(one scenario) bool {
		return len(wanted) > 0 && !slices.Contains(wanted, one.name)
	})
	for _, name := range wanted {
		if !slices.ContainsFunc(scenarios, func(one scenario) bool { return one.name == name }) {
			err = errors.Join(err, fmt.Errorf("there is no scenario %q: see --list", name))
		}
	}
	return chosen, err
}
