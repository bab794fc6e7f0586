package cluster

import (
	"context"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/standin"
)

// estate is a set of another implementation, with its objects.
type estate struct {
	inherited
	*scene
	other *standin.Other
	set   *lwsv1.LeaderWorkerSet
	key   string
	// keys are what the groups run, by index.
	keys []string
}

func (e *estate) must(what string, err error) {
	e.Helper()
	e.check(what+" of set "+e.name, err)
}

// found creates a set and its objects.
func (s *scene) found(other *standin.Other, v inherited) *estate {
	s.Helper()
	e := &estate{inherited: v, scene: s, other: other}
	if v.edit == nil {
		v.edit = func(*lwsv1.LeaderWorkerSet) {}
	}
	e.set = s.newSet(v.name, v.replicas, v.size, imageA, v.edit)
	s.create(e.set)
	e.keys = make([]string, v.replicas)
	e.record(1)
	for i := range e.keys {
		e.keys[i] = e.key
	}
	if e.posted {
		e.must("create the leaders", other.PostLeaders(s.Context(), e.set, e.key, v.replicas, e.changes()...))
	} else {
		e.apply(0, v.replicas)
	}
	if *e.set.Spec.NetworkConfig.SubdomainPolicy == lwsv1.SubdomainShared {
		e.must("create the service", other.Serve(s.Context(), e.set))
	}
	return e
}

// record creates the revision of the set as it is now.
func (e *estate) record(number int64) {
	e.Helper()
	data := string(standin.Data(e.set))
	if e.data != nil {
		data = e.data(data)
	}
	if e.key = e.inherited.key; e.key == "" {
		e.key = standin.Key([]byte(data))
	}
	for n := range e.leaked + 1 {
		e.must("record the revision", e.other.Record(e.Context(), e.set, []byte(data), e.key, number+n))
	}
}

func (e *estate) changes() []standin.Change {
	if e.spoil == nil {
		return nil
	}
	return []standin.Change{e.spoil}
}

func (e *estate) apply(partition, replicas int32) {
	e.Helper()
	e.must("apply the leaders", e.other.ApplyLeaders(e.Context(), e.set, e.key, partition, replicas, e.changes()...))
}

// update gives the set another image and records its revision.
func (e *estate) update(image string, number int64) {
	e.Helper()
	e.set = e.become(e.set, pull(image))
	e.record(number)
}

// tend creates the workers and the Service of every group whose leader has its revision.
func (e *estate) tend() {
	e.Helper()
	e.eventually("the groups of set "+e.name+" stand", func() error {
		for i, key := range e.keys {
			if err := e.tendGroup(i, key); err != nil {
				return fmt.Errorf("group %d: %w", i, err)
			}
		}
		return e.standing()
	})
}

func (e *estate) tendGroup(index int, key string) error {
	name := fmt.Sprintf("%s-%d", e.name, index)
	leader, ok := find[*corev1.Pod](e.recorder, name)
	if !ok || leader.DeletionTimestamp != nil || leader.Labels[lwsv1.RevisionKey] != key {
		return fmt.Errorf("no leader at %s yet", key)
	}
	if e.set.Spec.StartupPolicy == lwsv1.LeaderReadyStartupPolicy && !podReady(leader) {
		return fmt.Errorf("the leader is not ready")
	}
	if _, there := find[*corev1.Service](e.recorder, name); !there && leader.Annotations[lwsv1.SubdomainPolicyAnnotationKey] != "" {
		return orDone(e.other.ServeGroup(e.Context(), e.set, leader), "the service is made")
	}
	if e.size == 1 {
		return nil
	}
	if sts, there := find[*appsv1.StatefulSet](e.recorder, name); there {
		return lacking("owner of the workers", leader.UID, metav1.GetControllerOf(sts).UID)
	}
	domain := ""
	if e.set.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != "" {
		if domain = leader.Spec.NodeName; domain == "" { // a node's hostname label is its name
			return fmt.Errorf("the leader is not scheduled")
		}
	}
	return orDone(e.other.MakeWorkers(e.Context(), e.set, leader, domain), "the workers are made")
}

func orDone(err error, done string) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("%s", done)
}

// standing returns what the pods and StatefulSets of the set lack.
func (e *estate) standing() error {
	pods := e.podsOf(e.set)
	if err := lacking("pods", len(e.keys)*int(e.size), len(pods)); err != nil {
		return err
	}
	for _, pod := range pods {
		if !e.unplaced && !podReady(pod) || pod.DeletionTimestamp != nil {
			return fmt.Errorf("pod %s is not ready", pod.Name)
		}
	}
	for _, sts := range e.leadersAndWorkers() {
		if sts.Status.ObservedGeneration != sts.Generation || sts.Status.Replicas != *sts.Spec.Replicas ||
			!e.unplaced && sts.Status.AvailableReplicas != *sts.Spec.Replicas {
			return fmt.Errorf("statefulset %s has status %+v", sts.Name, sts.Status)
		}
	}
	return nil
}

func (e *estate) leadersAndWorkers() []*appsv1.StatefulSet {
	return slices.DeleteFunc(live[*appsv1.StatefulSet](e.recorder), func(sts *appsv1.StatefulSet) bool {
		return sts.Labels[lwsv1.SetNameLabelKey] != e.name
	})
}

// tell writes the status as the other implementation does.
func (e *estate) tell(updated int32, updating bool) {
	e.Helper()
	e.must("read", e.client.Get(e.Context(), keyOf(e.set), e.set))
	ready := int32(len(e.keys))
	if e.unplaced {
		ready = 0
	}
	condition := func(kind lwsv1.LeaderWorkerSetConditionType, holds bool, reason, message string) metav1.Condition {
		status := metav1.ConditionFalse
		if holds {
			status = metav1.ConditionTrue
		}
		return metav1.Condition{Type: string(kind), Status: status, Reason: reason, Message: message,
			ObservedGeneration: e.set.Generation, LastTransitionTime: metav1.Now()}
	}
	progressing := updating || e.unplaced
	conditions := []metav1.Condition{condition(lwsv1.LeaderWorkerSetProgressing, progressing, "GroupsProgressing", "Replicas are progressing")}
	if !e.unplaced {
		conditions = append(conditions, condition(lwsv1.LeaderWorkerSetAvailable, !updating, "AllGroupsReady", "All replicas are ready"))
	}
	if updating {
		conditions = append(conditions, condition(lwsv1.LeaderWorkerSetUpdateInProgress, true, "GroupsUpdating", "Rolling Upgrade is in progress"))
	}
	e.must("tell the status", e.other.Tell(e.Context(), e.set, lwsv1.LeaderWorkerSetStatus{
		Conditions: conditions, ReadyReplicas: ready, UpdatedReplicas: updated, Replicas: int32(len(e.keys)), ObservedGeneration: e.set.Generation,
		HPAPodSelector: fmt.Sprintf("%s=%s,%s=0", lwsv1.SetNameLabelKey, e.name, lwsv1.WorkerIndexLabelKey),
	}))
}

// judged checks that the other implementation finds this revision current.
func (e *estate) judged(ctx context.Context, key string) {
	e.Helper()
	have, err := e.other.Judge(ctx, e.set)
	e.must("judge the revision", err)
	if have != key {
		e.Fatalf("set %s: the current revision is %s, not %s", e.name, have, key)
	}
}
