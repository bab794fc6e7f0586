package lws

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// leadersOwner is the StatefulSet or Deployment that creates the leaders of a set.
type leadersOwner struct {
	metav1.Object
	kind     identity.Kind
	template *corev1.PodTemplateSpec
	// wants is how many leaders it is to have, and has how many it has.
	wants, has int32
	// isObserved is set once its controller has seen the present spec.
	isObserved bool
}

// leadersOwner returns the one that the set owns or adopts, or nil.
func (w *SetSnapshot) leadersOwner() *leadersOwner {
	return ownerOf(w.leaderStatefulSet(), w.leaderDeployment())
}

// ownerOf returns one of them, whichever is there, or nil.
func ownerOf(sts *appsv1.StatefulSet, deployment *appsv1.Deployment) *leadersOwner {
	switch {
	case sts != nil:
		return &leadersOwner{sts, identity.KindStatefulSet, &sts.Spec.Template, workload.PodsOf(sts), sts.Status.Replicas, workload.Observed(sts)}
	case deployment != nil:
		return &leadersOwner{
			deployment, identity.KindDeployment, &deployment.Spec.Template, ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status.Replicas,
			deployment.Status.ObservedGeneration >= deployment.Generation,
		}
	}
	return nil
}

// noun names its kind in a sentence.
func (o *leadersOwner) noun() string { return strings.ToLower(string(o.kind)) }

// key returns its revision key: its label, or else the label of its template.
func (o *leadersOwner) key() string {
	return cmp.Or(o.GetLabels()[lwsv1.RevisionKey], o.template.Labels[lwsv1.RevisionKey])
}

// leaderDeployment is the leader Deployment that the set owns or adopts.
func (w *SetSnapshot) leaderDeployment() *appsv1.Deployment {
	return cmp.Or(w.Deployment.Own(), w.Deployment.Orphan())
}

// Makes reports whether a leader belongs to what makes the leaders of the set.
func (w *SetSnapshot) Makes(leader *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(leader)
	sts := w.StatefulSet.Own()
	return owner != nil && (sts != nil && owner.UID == sts.UID || slices.Contains(w.ReplicaSets, owner.UID))
}

func (d *deploymentMaker) desired() (action.Object, *corev1.PodTemplateSpec) {
	desired := workload.LeaderDeployment(d.Set, d.target.key, d.pauses())
	return desired, &desired.Spec.Template
}

func (d *deploymentMaker) differs(object action.Object, applied string) bool {
	live, desired := d.Deployment.Own(), object.(*appsv1.Deployment)
	return !isLabelledAs(live, desired) || live.Annotations[AppliedAnnotationKey] != applied || !contains(&live.Spec, &desired.Spec) || live.Spec.Paused != desired.Spec.Paused
}

func (d *deploymentMaker) record(_ action.Object, applied string) string { return applied }

func (d *deploymentMaker) whyApply() action.Reason {
	return because(CodeChanged, fmt.Sprintf("deployment %s differs from the spec", d.Set.Name))
}

// pauses reports whether the Deployment is paused: the rollout is, and it has begun. A Deployment that is paused
// from its beginning makes no leader. It stays paused as long as the set is.
func (d *deploymentMaker) pauses() bool {
	live := d.leaderDeployment()
	return d.holdsRollout() && (d.toUpdate() > 0 || live != nil && live.Spec.Paused)
}

// relied implements maker: a template of an earlier spec would replace pods of the present one.
func (d *deploymentMaker) relied() []action.Standing {
	if d.leadersKey() == d.target.key {
		return nil
	}
	return []action.Standing{d.unchangedSet()}
}

func (d *deploymentMaker) rolloutEvents() []action.Event {
	if d.leadersKey() == d.target.key {
		return nil
	}
	return []action.Event{{
		Reason: "GroupsUpdating", Action: "Update", Note: "Updating leader deployment to revision " + d.target.key, Related: d.target.revision,
	}}
}

// isObserved reports whether the Deployment controller has seen the present spec, at the revision that groups
// should be at.
func (d *deploymentMaker) isObserved() bool {
	owner := ownerOf(nil, d.Deployment.Own())
	return owner != nil && owner.isObserved && owner.key() == d.targetKey()
}

func (d *deploymentMaker) isOutdated(leader *corev1.Pod) bool {
	owner := d.leadersOwner()
	return leader.Labels[lwsv1.RevisionKey] != d.targetKey() || owner == nil || d.isDisplaced || owner.replaces(leader)
}

// replaces reports whether a leader is of another revision or placement than the template.
func (o *leadersOwner) replaces(leader *corev1.Pod) bool {
	return leader.Labels[lwsv1.RevisionKey] != o.template.Labels[lwsv1.RevisionKey] ||
		slices.ContainsFunc(workload.Placements, func(key string) bool { return leader.Annotations[key] != o.template.Annotations[key] })
}

// toUpdate counts the leaders of another revision or placement that exist, terminating ones too. Of leaders
// that differ in something else, such as the time of a restart, the Deployment alone knows.
func (d *deploymentMaker) toUpdate() int32 {
	var n int32
	for _, leader := range d.leadersAndLeaving() {
		n += one(d.isOutdated(leader))
	}
	return max(n, d.superseded())
}

// rolls reports whether the Deployment replaces leaders. It may have more of them meanwhile.
func (d *deploymentMaker) rolls() bool {
	return d.superseded() > 0 || slices.ContainsFunc(d.leadersAndLeaving(), d.leadersOwner().replaces)
}

// superseded is how many leaders the Deployment has of templates before the present one.
func (d *deploymentMaker) superseded() int32 {
	deployment := d.Deployment.Own()
	if deployment == nil {
		return 0
	}
	return max(0, deployment.Status.Replicas-deployment.Status.UpdatedReplicas)
}
