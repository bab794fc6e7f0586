// Package workloads knows which PVCs a workload wants: those that its pod templates name, and
// those that it creates by number.
//
// It refuses to know how workloads are read, and what follows for a PVC.
package workloads

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/identity"
)

// Want is the PVCs that the spec of one workload names, whether its pods exist or not.
type Want struct {
	Workload identity.Ref
	// Controller is its controller, or zero.
	Controller identity.Ref
	// Ending reports that the workload is being deleted: it wants nothing any more.
	Ending bool
	// Foreground reports that it also waits until everything that it owns is gone.
	Foreground bool
	// Idle is why it uses none of the PVCs now, or empty.
	Idle string
	// Named are PVCs that pod templates name, and the field that names each.
	Named map[string]string
	// Series are numbered PVCs.
	Series []Series
	// DeleteWhenScaled reports that PVCs beyond the replicas are to be deleted.
	DeleteWhenScaled bool
	// Released is what ends its use.
	Released string
	// Since is when it was created, or zero.
	Since time.Time
}

// Series is PVCs whose names end in numbers: prefix-3, or prefix-0-3.
type Series struct {
	Prefix string
	Spans  []Span
	Path   string
}

// Span is the numbers from From up to, and not including, To.
type Span struct{ From, To int }

func newWant(kind identity.Kind, apiVersion string, workload metav1.Object) Want {
	w := Want{
		Workload: identity.RefOf(kind, workload), Ending: workload.GetDeletionTimestamp() != nil,
		Named: map[string]string{}, Since: workload.GetCreationTimestamp().Time,
	}
	w.Foreground = w.Ending && slices.Contains(workload.GetFinalizers(), metav1.FinalizerDeleteDependents)
	w.Workload.APIVersion = apiVersion
	if owner := metav1.GetControllerOfNoCopy(workload); owner != nil {
		w.Controller = identity.OwnerRef(workload.GetNamespace(), *owner)
	}
	return w
}

// Match is one workload that wants a PVC.
type Match struct {
	Want *Want
	// Path is the field that names the PVC.
	Path string
	// Idle is why the workload does not use the PVC now, or empty.
	Idle string
	// Numbered reports that the workload creates the PVC.
	Numbered bool
	// Below is the number of replicas at which the workload does not want the PVC.
	Below int
}

// Discarded reports whether the workload was scaled away from the PVC, and deletes what is left over.
func (m Match) Discarded() bool {
	return m.Numbered && m.Idle != "" && m.Want.DeleteWhenScaled && !m.Want.Ending
}

// matches are the ways in which a workload wants a PVC, in range or not.
func (w *Want) matches(name string) (all []Match) {
	if path, ok := w.Named[name]; ok {
		all = append(all, Match{Want: w, Path: path, Idle: w.Idle})
	}
	for _, series := range w.Series {
		numbers, ok := series.numbers(name)
		if !ok {
			continue
		}
		m := Match{Want: w, Path: series.Path, Idle: w.Idle, Numbered: true, Below: max(0, numbers[0]-series.Spans[0].From)}
		if m.Idle == "" && !series.inRange(numbers) {
			m.Idle = "out of range"
		}
		all = append(all, m)
	}
	return all
}

// numbers are the numbers that a name of the series ends in. "007" is not 7.
func (s Series) numbers(name string) (numbers []int, ok bool) {
	for range s.Spans {
		parent, n := identity.ParentAndOrdinal(name)
		if identity.LeaderName(parent, n) != name {
			return nil, false
		}
		name, numbers = parent, append(numbers, n)
	}
	slices.Reverse(numbers)
	return numbers, name == s.Prefix
}

func (s Series) inRange(numbers []int) bool {
	for i, span := range s.Spans {
		if numbers[i] < span.From || numbers[i] >= span.To {
			return false
		}
	}
	return true
}
