package scheduling

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/lws"
	"lockstep.dev/lockstep/internal/lws/table"
)

// Scheduler is what places the pods of a set, as far as the whole set is concerned. Groups have PodGroups of their own.
type Scheduler interface {
	// Missing says why no group can be placed, or is empty.
	Missing() string
	// Keep keeps the objects by which the scheduler knows the set.
	Keep() lws.Plan
	// IsAwaited reports whether the first leaders wait for these objects.
	IsAwaited() bool
	// Mark gives the template of leaders what the scheduler knows them by.
	Mark(leaders *corev1.PodTemplateSpec)
	// Conditions are those about these objects.
	Conditions() []metav1.Condition
}

// kubernetes is Kubernetes' own scheduler: it knows a set by its Workload.
type kubernetes struct{ *table.Table }

// groupwise is Volcano, or a scheduler that knows no groups: neither knows a set.
type groupwise struct{ *table.Table }

// Of returns the scheduler of a set.
func Of(t *table.Table) Scheduler {
	if t.Scheduler == gang.Kubernetes && t.SetSnapshot.Set.Spec.Scheduling != nil {
		return kubernetes{t}
	}
	return groupwise{t}
}

func (s groupwise) Missing() string                { return s.GangMissing }
func (s groupwise) Keep() (p lws.Plan)             { return p }
func (s groupwise) IsAwaited() bool                { return false }
func (s groupwise) Mark(*corev1.PodTemplateSpec)   {}
func (s groupwise) Conditions() []metav1.Condition { return nil }

func (s kubernetes) Missing() string                      { return "" }
func (s kubernetes) Mark(leaders *corev1.PodTemplateSpec) { gang.HandTo(leaders, s.Set) }

// IsAwaited implements Scheduler: the scheduler would not know the leaders.
func (s kubernetes) IsAwaited() bool { return s.AwaitsLeaders() && !hasWorkload(s.Table) }
