package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/drill"
	"lockstep.dev/lockstep/test/standin"
)

// otherSet is a set that another implementation has created, at rest.
type otherSet struct {
	name     string
	replicas int32
	size     int32
	edit     edit
	// data is how an earlier version encodes the data of a revision.
	data func(string) string
	// key is the key of the revision, if it is not the hash of its data.
	key string
	// spoil changes the leader StatefulSet as an earlier version or a webhook does.
	spoil standin.Change
	// posted is set if the leader StatefulSet was created, not applied.
	posted bool
	// leaked is how many copies of the revision exist.
	leaked int64
	// unplaced is set if no node fits the pods.
	unplaced bool
}

const (
	hostname      = "kubernetes.io/hostname"
	changedClaims = "changed-claims"
)

var otherSets = []otherSet{
	{name: "plain", replicas: 2, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) {
		set.Labels, set.Annotations = map[string]string{"team": "blue"}, map[string]string{"note": "mine"}
	}},
	{name: "leader-template", replicas: 2, size: 3, edit: func(set *lwsv1.LeaderWorkerSet) {
		leader := template(imageA)
		leader.Labels = map[string]string{"role": "leader"}
		leader.Spec.Containers[0].Args = []string{"a<b>&c"}
		leader.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080}}
		leader.Spec.Volumes = []corev1.Volume{{Name: "shm", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}}}
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
		set.Spec.LeaderWorkerTemplate.RestartPolicy = lwsv1.RecreateGroupAfterStart
	}},
	{name: "alone", replicas: 2, size: 1},
	{name: "subgroups", replicas: 1, size: 4, edit: partsOf(2, lwsv1.SubGroupPolicyTypeLeaderWorker)},
	{name: "leader-excluded", replicas: 1, size: 3, edit: partsOf(2, lwsv1.SubGroupPolicyTypeLeaderExcluded)},
	{name: "exclusive", replicas: 2, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) {
		set.Annotations = map[string]string{lwsv1.ExclusiveKeyAnnotationKey: hostname}
	}},
	{name: "exclusive-subgroups", replicas: 1, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) {
		partsOf(1, lwsv1.SubGroupPolicyTypeLeaderWorker)(set)
		set.Annotations = map[string]string{lwsv1.SubGroupExclusiveKeyAnnotationKey: hostname}
	}},
	{name: "placed-by-template", replicas: 1, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) { // its leader alone is
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Annotations = map[string]string{lwsv1.ExclusiveKeyAnnotationKey: hostname}
	}},
	{name: "per-replica", replicas: 2, size: 2, edit: uniquePerReplica},
	{name: "claims", replicas: 2, size: 3, edit: volumes(deleteClaims, keepClaims)},
	{name: "tpu", replicas: 1, size: 2, unplaced: true, edit: func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"google.com/tpu": resource.MustParse("4")}
	}},
	{name: "leader-ready", replicas: 2, size: 2, edit: func(set *lwsv1.LeaderWorkerSet) { set.Spec.StartupPolicy = lwsv1.LeaderReadyStartupPolicy }},
	{name: "leaked", replicas: 1, size: 2, leaked: 3},

	// What earlier versions left.
	{name: "null-times", replicas: 1, size: 2, data: func(data string) string {
		return strings.ReplaceAll(data, `"metadata":{}`, `"metadata":{"creationTimestamp":null}`)
	}},
	{name: "no-policy-type", replicas: 1, size: 4, edit: partsOf(2, lwsv1.SubGroupPolicyTypeLeaderWorker),
		data: func(data string) string { return strings.ReplaceAll(data, `"subGroupPolicyType":"LeaderWorker",`, "") },
		spoil: func(sts *appsv1.StatefulSet) {
			delete(sts.Spec.Template.Annotations, lwsv1.SubGroupPolicyTypeAnnotationKey)
		}},
	{name: "no-network", replicas: 1, size: 2, data: func(data string) string {
		head, _, _ := strings.Cut(data, `,"networkConfig"`)
		return head + "}}"
	}},
	{name: "other-key", replicas: 1, size: 2, key: "0d1e2f"},
	{name: "posted", replicas: 1, size: 2, posted: true},
	{name: "other-claims", replicas: 1, size: 1, edit: volumes(deleteClaims, keepClaims), spoil: func(sts *appsv1.StatefulSet) {
		claim := &sts.Spec.VolumeClaimTemplates[0]
		claim.TypeMeta, claim.Namespace = metav1.TypeMeta{}, ""
	}},
	// The other took a change of the claims, and no StatefulSet did.
	{name: changedClaims, replicas: 1, size: 1,
		edit: func(set *lwsv1.LeaderWorkerSet) {
			volumes(deleteClaims, keepClaims)(set)
			set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates[0].Name = "cache"
		},
		data:  func(data string) string { return strings.ReplaceAll(data, `"name":"cache"`, `"name":"data"`) },
		spoil: func(sts *appsv1.StatefulSet) { sts.Spec.VolumeClaimTemplates[0].Name = "data" }},
	{name: "mirrored", replicas: 1, size: 2, spoil: func(sts *appsv1.StatefulSet) {
		sts.Spec.Template.Spec.Containers[0].Image = "mirror.example/serve:a"
		sts.Spec.Template.Spec.Containers = append(sts.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: imageA})
	}},
	{name: "later", replicas: 1, size: 2, spoil: func(sts *appsv1.StatefulSet) {
		sts.Spec.Template.Annotations["leaderworkerset.sigs.k8s.io/of-a-later-version"] = "x"
	}},
}

// standinSet is such a set in a scene, with its objects.
type standinSet struct {
	otherSet
	*scene
	other *standin.Other
	set   *lwsv1.LeaderWorkerSet
	key   string
	// keys are what the groups run, by index.
	keys []string
}

func (e *standinSet) must(what string, err error) {
	e.Check(what+" of set "+e.name, err)
}

// found creates a set and its objects.
func (s *scene) found(other *standin.Other, v otherSet) *standinSet {
	e := &standinSet{otherSet: v, scene: s, other: other}
	e.set = s.newSet(v.name, v.replicas, v.size, imageA)
	if v.edit != nil {
		v.edit(e.set)
	}
	s.Create(e.set)
	e.keys = make([]string, v.replicas)
	e.record(1)
	for i := range e.keys {
		e.keys[i] = e.key
	}
	if e.posted {
		e.must("create the leaders", other.PostLeaders(s.Context(), e.set, e.key, v.replicas, e.spoil))
	} else {
		e.apply(0, v.replicas)
	}
	if *e.set.Spec.NetworkConfig.SubdomainPolicy == lwsv1.SubdomainShared {
		e.must("create the service", other.Serve(s.Context(), e.set))
	}
	return e
}

// record creates the revision of the set as it is now.
func (e *standinSet) record(number int64) {
	data := string(standin.Data(e.set))
	if e.data != nil {
		data = e.data(data)
	}
	if e.key = e.otherSet.key; e.key == "" {
		e.key = standin.Key([]byte(data))
	}
	for n := range e.leaked + 1 {
		e.must("record the revision", e.other.Record(e.Context(), e.set, []byte(data), e.key, number+n))
	}
}

func (e *standinSet) apply(partition, replicas int32) {
	e.must("apply the leaders", e.other.ApplyLeaders(e.Context(), e.set, e.key, partition, replicas, e.spoil))
}

// update gives the set another image and records its revision.
func (e *standinSet) update(image string, number int64) {
	e.set = e.become(e.set, pull(image))
	e.record(number)
}

// tend creates the workers and the Service of every group whose leader has its revision.
func (e *standinSet) tend() {
	e.Eventually("the groups of set "+e.name+" stand", func() error {
		for i, key := range e.keys {
			if err := e.tendGroup(i, key); err != nil {
				return fmt.Errorf("group %d: %w", i, err)
			}
		}
		return e.standing()
	})
}

func (e *standinSet) tendGroup(index int, key string) error {
	name := fmt.Sprintf("%s-%d", e.name, index)
	leader := e.Pod(name)
	if leader == nil || leader.DeletionTimestamp != nil || leader.Labels[lwsv1.RevisionKey] != key {
		return fmt.Errorf("no leader at %s yet", key)
	}
	if e.set.Spec.StartupPolicy == lwsv1.LeaderReadyStartupPolicy && !drill.PodReady(leader) {
		return fmt.Errorf("the leader is not ready")
	}
	if there := e.Service(name); there == nil && leader.Annotations[lwsv1.SubdomainPolicyAnnotationKey] != "" {
		return errors.Join(e.other.ServeGroup(e.Context(), e.set, leader), drill.ErrStill)
	}
	if e.size == 1 {
		return nil
	}
	if sts := e.StatefulSet(name); sts != nil {
		return drill.Lacking("owner of the workers", leader.UID, metav1.GetControllerOf(sts).UID)
	}
	domain := ""
	if e.set.Annotations[lwsv1.ExclusiveKeyAnnotationKey] != "" {
		if domain = leader.Spec.NodeName; domain == "" { // a node's hostname label is its name
			return fmt.Errorf("the leader is not scheduled")
		}
	}
	return errors.Join(e.other.MakeWorkers(e.Context(), e.set, leader, domain), drill.ErrStill)
}

// standing returns what the pods and StatefulSets of the set lack.
func (e *standinSet) standing() error {
	pods := e.podsOf(e.set)
	if err := drill.Lacking("pods", len(e.keys)*int(e.size), len(pods)); err != nil {
		return err
	}
	for _, pod := range pods {
		if !e.unplaced && !drill.PodReady(pod) || pod.DeletionTimestamp != nil {
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

func (e *standinSet) leadersAndWorkers() []*appsv1.StatefulSet {
	return slices.DeleteFunc(e.StatefulSets(), func(sts *appsv1.StatefulSet) bool {
		return sts.Labels[lwsv1.SetNameLabelKey] != e.name
	})
}

// tell writes the status as the other implementation does.
func (e *standinSet) tell(updated int32, updating bool) {
	e.must("read", e.Client.Get(e.Context(), client.ObjectKeyFromObject(e.set), e.set))
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
func (e *standinSet) judged(ctx context.Context, key string) {
	have, err := e.other.Judge(ctx, e.set)
	e.must("judge the revision", err)
	if have != key {
		e.Fatalf("set %s: the current revision is %s, not %s", e.name, have, key)
	}
}
