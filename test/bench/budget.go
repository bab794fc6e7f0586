package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"sigs.k8s.io/yaml"
)

// budget is what figures are compared with.
type budget struct {
	// Machine is where the ranges were measured. On another, only targets count.
	Machine machine `json:"machine"`
	// Figures holds, by name, what a figure is to be.
	Figures map[string]allowance `json:"figures"`
	// Runs are those that set the ranges. The bench reads nothing of them.
	Runs []map[string]any `json:"runs"`
}

// allowance is what one figure may be.
type allowance struct {
	// Target is what is to be reached, at most or, with Least, at least.
	Target *float64 `json:"target,omitempty"`
	Least  bool     `json:"least,omitempty"`
	// Range is between what the figure was in the runs below: beyond it something
	// has changed, for better or worse.
	Range []float64 `json:"range,omitempty"`
}

// readBudget reads a budget; without a path there is none.
func readBudget(path string) (*budget, error) {
	b := &budget{}
	if path == "" {
		return b, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(text, b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name, a := range b.Figures {
		if len(a.Range) != 0 && (len(a.Range) != 2 || a.Range[0] > a.Range[1]) {
			return nil, fmt.Errorf("%s: %s: a range is two numbers, the lower first", path, name)
		}
	}
	return b, nil
}

// judge says what is to be said of a figure, or nothing.
func (b *budget) judge(f figure) string {
	a, known := b.Figures[f.name]
	switch {
	case !known:
		return ""
	case a.missed(f.value):
		return fmt.Sprintf("TARGET MISSED: %s is %s, to be %s", f.name, short(f.value), a.goal())
	case b.comparable() && a.worse(f.value):
		return fmt.Sprintf("BEYOND ITS RANGE: %s is %s, was %s to %s", f.name, short(f.value), short(a.Range[0]), short(a.Range[1]))
	case b.comparable() && len(a.Range) == 2 && a.better(f.value):
		return fmt.Sprintf("better than its range: %s is %s, was %s to %s", f.name, short(f.value), short(a.Range[0]), short(a.Range[1]))
	}
	return ""
}

// comparable tells whether this machine is like the one the ranges are from.
func (b *budget) comparable() bool {
	return b.Machine == machine{Processor: processor(), Cores: newReport(settings{}).machine.Cores}
}

func (a allowance) missed(value float64) bool {
	return a.Target != nil && (!a.Least && value > *a.Target || a.Least && value < *a.Target)
}

func (a allowance) worse(value float64) bool {
	return len(a.Range) == 2 && (!a.Least && value > a.Range[1] || a.Least && value < a.Range[0])
}

func (a allowance) better(value float64) bool {
	return !a.Least && value < a.Range[0] || a.Least && value > a.Range[1]
}

func (a allowance) goal() string {
	if a.Least {
		return "at least " + short(*a.Target)
	}
	return "at most " + short(*a.Target)
}

// compare returns an error for every figure of a report that is worse than it may be.
func (b *budget) compare(r *report) error {
	var errs []error
	for _, f := range r.figures {
		a, known := b.Figures[f.name]
		if known && (a.missed(f.value) || b.comparable() && a.worse(f.value)) {
			errs = append(errs, errors.New(b.judge(f)))
		}
	}
	return errors.Join(slices.Clip(errs)...)
}
