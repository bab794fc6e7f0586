// Command bench measures Lockstep on the local control plane against the floor: the
// same pods as bare StatefulSets, made by the bench itself, in the same run.
//
// It knows what a user can see, and what the system tells of the operator as a
// process. It refuses to know anything of the operator's inside.
//
//	make bench                                         # everything, half an hour on two cores, more if they are shared
//	make bench BENCHFLAGS="--scenario create-100x8"    # one scenario; may be given several times
//
// The figures are compared with the targets of budget.yaml. A load that was not reached makes a
// run invalid, not good.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"

	"github.com/go-logr/logr"
	flag "github.com/spf13/pflag"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"lockstep.dev/lockstep/test/drill"
)

// settings are what may be chosen about a run.
type settings struct {
	scenarios []string
	repeat    int
	nodes     int
	qps       int
	budget    string
	pprof     string
	list      bool
}

func main() {
	if os.Getenv(drill.ReaperEnv) != "" {
		drill.Exit(drill.Reap(os.Stdin))
	}
	if os.Getenv("LOCKSTEP_BIN") == "" {
		_ = os.Setenv("LOCKSTEP_BIN", "bin") // the bench runs where its budget is found, at the top
	}
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	s := settings{}
	flag.StringSliceVar(&s.scenarios, "scenario", nil, "`name` of a scenario to run; all without")
	flag.IntVar(&s.repeat, "repeat", 1, "how often each scenario is run; the median counts")
	flag.IntVar(&s.nodes, "nodes", 50, "simulated nodes")
	flag.IntVar(&s.qps, "kcm-qps", 200, "queries per second of the controller manager's client; its burst is half as much again")
	flag.StringVar(&s.budget, "budget", "test/bench/budget.yaml", "`file` to compare with; empty compares with nothing")
	flag.StringVar(&s.pprof, "pprof-bind-address", "", "`address` on which the operator serves profiles to go tool pprof")
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

// codeOf is what the bench ends with: 1 for figures beyond what they may be, and for
// all that fails; 2 for a run that says nothing, since a load was not reached.
func codeOf(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errInvalid):
		return 2
	}
	return 1
}

// run runs the chosen scenarios on a control plane of their own.
func run(ctx context.Context, s settings) (err error) {
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

// choose returns the scenarios with the given names, in the order in which they are best
// run.
func choose(wanted []string) (chosen []scenario, err error) {
	for _, one := range scenarios {
		if len(wanted) == 0 || slices.Contains(wanted, one.name) {
			chosen = append(chosen, one)
		}
	}
	for _, name := range wanted {
		if !slices.ContainsFunc(scenarios, func(one scenario) bool { return one.name == name }) {
			err = errors.Join(err, fmt.Errorf("there is no scenario %q: see --list", name))
		}
	}
	return chosen, err
}
