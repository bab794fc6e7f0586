package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

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

// judge returns what is wrong, or better, with a figure, or nothing.
func (b *budget) judge(f figure) string {
	a := b.Figures[f.name]
	target := "at most"
	sign := 1.0 // more is worse
	if a.Least {
		target, sign = "at least", -1
	}
	if a.Target != nil && sign*f.value > sign**a.Target {
		return fmt.Sprintf("TARGET MISSED: %s is %s, to be %s %s", f.name, short(f.value), target, short(*a.Target))
	}
	if b.Machine != newReport(settings{}).machine || len(a.Range) != 2 || f.value >= a.Range[0] && f.value <= a.Range[1] {
		return ""
	}
	verdict := "better than its range"
	if worse := f.value > a.Range[1]; worse != a.Least {
		verdict = "BEYOND ITS RANGE"
	}
	return fmt.Sprintf("%s: %s is %s, was %s to %s", verdict, f.name, short(f.value), short(a.Range[0]), short(a.Range[1]))
}

// compare returns an error for every figure that is worse than it may be.
func (b *budget) compare(r *report) (err error) {
	for _, f := range r.figures {
		if verdict := b.judge(f); verdict != "" && !strings.HasPrefix(verdict, "better") {
			err = errors.Join(err, errors.New(verdict))
		}
	}
	return err
}
