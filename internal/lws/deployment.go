package lws

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/action"
	"lockstep.dev/lockstep/internal/gang"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// leadersOwner is what makes the leaders of a set: its StatefulSet, or its Deployment where groups
// have keys.
type leadersOwner struct {
	metav1.Object
	kind     identity.Kind
	template *corev1.PodTemplateSpec
}

// leadersOwner returns the one that the set owns or adopts, or nil.
func (d *setDecision) leadersOwner() *leadersOwner {
	if sts := d.leaderStatefulSet(); sts != nil {
		return &leadersOwner{sts, identity.KindStatefulSet, &sts.Spec.Template}
	}
	if deployment := d.leaderDeployment(); deployment != nil {
		return &leadersOwner{deployment, identity.KindDeployment, &deployment.Spec.Template}
	}
	return nil
}

// leaderDeployment is the leader Deployment that the set owns or adopts.
func (d *setDecision) leaderDeployment() *appsv1.Deployment {
	if deployment := d.Deployment.Own(); deployment != nil {
		return deployment
	}
	return d.Deployment.Orphan()
}

// Makes reports whether a leader belongs to what makes the leaders of the set.
func (w *SetSnapshot) Makes(leader *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(leader)
	sts := w.StatefulSet.Own()
	return owner != nil && (sts != nil && owner.UID == sts.UID || slices.Contains(w.ReplicaSets, owner.UID))
}

// deployment creates the leader Deployment, or applies it onto the version that was judged if it differs from
// the spec. The Deployment controller does the rollout.
func (d *setDecision) deployment() (p Plan) {
	if d.held || d.target.key == "" || d.awaitsWorkload() {
		return p
	}
	desired := workload.LeaderDeployment(d.Set, d.target.key, d.pauses())
	if d.isNative() {
		gang.HandTo(&desired.Spec.Template, d.Set)
	}
	d.templateAsFound(desired, &desired.Spec.Template)
	delete(desired.Annotations, AppliedAnnotationKey)
	applied := Fingerprint(desired)
	desired.Annotations[AppliedAnnotationKey] = applied
	live := d.leaderDeployment()
	if live == nil {
		if d.Deployment.Empty() {
			p.do(d.createLeaders(identity.KindDeployment, desired))
		}
		return p
	}
	if orphan := d.Deployment.Orphan(); orphan == live {
		owner := setRef(d.Set)
		p.do(d.applyDeployment(live, desired, &owner, because(CodeOrphan, fmt.Sprintf("deployment %s has no controller, and has this set's labels", live.Name))))
		return p
	}
	if !isLabelledAs(live, desired) || live.Annotations[AppliedAnnotationKey] != applied || !contains(&live.Spec, &desired.Spec) || live.Spec.Paused != desired.Spec.Paused {
		p.do(d.applyDeployment(live, desired, nil, because(CodeChanged, fmt.Sprintf("deployment %s differs from the spec", live.Name))))
	}
	return p
}

// pauses reports whether the Deployment is paused: the rollout is, and it has begun. A Deployment that is paused
// from its beginning makes no leader. It stays paused as long as the set is.
func (d *setDecision) pauses() bool {
	live := d.leaderDeployment()
	return d.holdsRollout() && (d.outdatedHashLeaders() > 0 || live != nil && live.Spec.Paused)
}

// applyDeployment relies on the set as it was judged: a template of an earlier spec would replace pods of the present
// one.
func (d *setDecision) applyDeployment(live, desired *appsv1.Deployment, adopter *identity.Ref, reason action.Reason) action.Apply {
	write := action.Apply{
		Object:     desired,
		Onto:       identity.RefOf(identity.KindDeployment, live),
		FieldOwner: FieldOwner,
		Applied:    !leftByCreate(live),
		Adopter:    adopter,
		Because:    reason,
		Tell:       action.Telling{Refused: warning("FailedUpdate", "Update", "Failed to update leader deployment "+d.Set.Name, nil)},
	}
	if leadersKey(d.leadersOwner()) != d.target.key {
		write.Relies = []action.Standing{d.unchangedSet()}
		write.Tell.Done = []action.Event{{
			Reason: "GroupsUpdating", Action: "Update", Note: "Updating leader deployment to revision " + d.target.key, Related: d.target.revision,
		}}
	}
	return write
}

func keyOfDeployment(deployment *appsv1.Deployment) string {
	return leadersKey(&leadersOwner{deployment, identity.KindDeployment, &deployment.Spec.Template})
}

// isObserved reports whether the Deployment controller has seen the present spec, at the revision that groups
// should be at.
func (d *setDecision) isObserved() bool {
	deployment := d.Deployment.Own()
	return deployment != nil && deployment.Status.ObservedGeneration >= deployment.Generation && leadersKey(d.leadersOwner()) == d.targetKey()
}

// isOutdated reports whether a leader is of another revision or placement than its Deployment is to have.
func (d *setDecision) isOutdated(leader *corev1.Pod) bool {
	owner := d.leadersOwner()
	return leader.Labels[lwsv1.RevisionKey] != d.targetKey() || owner == nil || d.displaced(owner) || owner.replaces(leader)
}

// replaces reports whether a leader is of another revision or placement than the template.
func (o *leadersOwner) replaces(leader *corev1.Pod) bool {
	return leader.Labels[lwsv1.RevisionKey] != o.template.Labels[lwsv1.RevisionKey] ||
		slices.ContainsFunc(workload.Placements, func(key string) bool { return leader.Annotations[key] != o.template.Annotations[key] })
}

// outdatedHashLeaders counts the leaders of another revision or placement that exist, terminating ones too. Of leaders
// that differ in something else, such as the time of a restart, the Deployment alone knows.
func (d *setDecision) outdatedHashLeaders() int32 {
	var n int32
	for _, leader := range d.leadersAndLeaving() {
		n += one(d.isOutdated(leader))
	}
	return max(n, d.superseded())
}

// rolls reports whether the Deployment replaces leaders. It may have more of them meanwhile.
func (d *setDecision) rolls() bool {
	return d.superseded() > 0 || slices.ContainsFunc(d.leadersAndLeaving(), d.leadersOwner().replaces)
}

// superseded is how many leaders the Deployment has of templates before the present one.
func (d *setDecision) superseded() int32 {
	deployment := d.Deployment.Own()
	if deployment == nil {
		return 0
	}
	return max(0, deployment.Status.Replicas-deployment.Status.UpdatedReplicas)
}
