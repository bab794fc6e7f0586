package fakeapi

import (
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// Node is the node of every fake pod.
const Node = "node-0"

// Controllers is a fake of the controllers of a cluster: StatefulSets, the
// garbage collector and a kubelet. Each step does one thing.
type Controllers struct {
	*Server
	// Starts is how long a pod takes from its creation until it is ready.
	Starts time.Duration
	// blocked maps each StatefulSet that found a taken name to the wakers of that
	// moment: it does not try again until they change.
	blocked map[types.UID]string
	// unseen are the blocked StatefulSets whose names are taken by pods without a set's
	// label: no watch for sets shows when these pods go.
	unseen map[types.UID]bool
	// templates are all templates that StatefulSets have had, by hash.
	templates map[string]corev1.PodTemplateSpec
}

// Control returns controllers for a store.
func Control(s *Server) *Controllers {
	return &Controllers{Server: s, blocked: map[types.UID]string{}, unseen: map[types.UID]bool{}, templates: map[string]corev1.PodTemplateSpec{}}
}

// Sync reconciles one StatefulSet as the StatefulSet controller does.
func (c *Controllers) Sync(sts *appsv1.StatefulSet) {
	if sts.DeletionTimestamp != nil {
		return
	}
	c.templates[templateHash(sts)] = *sts.Spec.Template.DeepCopy()
	first, end := ordinals(sts)
	count := end - first
	c.adoptPods(sts)
	c.clearEnded(sts)
	if c.blocked[sts.UID] != wakers(sts) {
		delete(c.blocked, sts.UID)
		c.ensurePods(sts, first, count)
	}
	c.ownClaims(sts)
	for _, pod := range c.podsOf(sts) {
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); ordinal >= first+count && pod.DeletionTimestamp == nil {
			c.Remove(pod, metav1.DeletePropagationBackground)
		}
	}
	c.replaceOutdated(sts)
	c.reportStatus(sts)
}

// adoptPods makes the StatefulSet the controller of pods without one that have a name of
// the StatefulSet's and match its selector.
func (c *Controllers) adoptPods(sts *appsv1.StatefulSet) {
	if sts.Spec.Selector == nil {
		return
	}
	for _, pod := range All[*corev1.Pod](c.Objects) {
		parent, _ := identity.ParentAndOrdinal(pod.Name)
		selected := labels.SelectorFromSet(sts.Spec.Selector.MatchLabels).Matches(labels.Set(pod.Labels))
		if parent == sts.Name && selected && pod.DeletionTimestamp == nil && metav1.GetControllerOf(pod) == nil {
			Edit(c.Server, pod.Name, func(pod *corev1.Pod) { OwnedBy(pod, "apps/v1", identity.RefOf(identity.KindStatefulSet, sts)) })
		}
	}
}

// clearEnded deletes failed and succeeded pods. They are gone at once.
func (c *Controllers) clearEnded(sts *appsv1.StatefulSet) {
	for _, pod := range c.podsOf(sts) {
		if over(pod) && pod.DeletionTimestamp == nil && len(pod.Finalizers) == 0 {
			delete(c.Objects, NameOf(pod))
		}
	}
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// wakers returns the fields whose change ends the back-off of a StatefulSet.
func wakers(sts *appsv1.StatefulSet) string {
	return "at " + strconv.FormatInt(sts.Generation, 10) + sts.Annotations[lws.NudgeAnnotationKey]
}

// ensurePods creates missing pods in batches of 1, 2, 4, … and stops after the first
// batch in which a name is taken.
func (c *Controllers) ensurePods(sts *appsv1.StatefulSet, first, count int) {
	for start, batch := 0, 1; start < count; start, batch = start+batch, batch*2 {
		for i := start; i < min(start+batch, count); i++ {
			c.ensurePod(sts, first+i)
		}
		if c.blocked[sts.UID] != "" {
			break
		}
	}
	if c.Now.Sub(sts.CreationTimestamp.Time) <= time.Second {
		delete(c.blocked, sts.UID) // the back-off is still short
	}
}

func (c *Controllers) ensurePod(sts *appsv1.StatefulSet, ordinal int) {
	name := sts.Name + "-" + strconv.Itoa(ordinal)
	standing := Find[*corev1.Pod](c.Server, name)
	if standing == nil {
		if c.ensureClaims(sts, name) {
			Add(c.Server, c.podOf(sts, name, ordinal))
		}
		return
	}
	if !metav1.IsControlledBy(standing, sts) {
		c.blocked[sts.UID] = wakers(sts)
		c.unseen[sts.UID] = standing.Labels[lwsv1.SetNameLabelKey] == ""
	}
}

// TryAgain ends the back-off of StatefulSets that found pods without events. A real back-off
// ends by itself, after as long again as the names were taken.
func (c *Controllers) TryAgain() {
	for uid := range c.unseen {
		delete(c.blocked, uid)
	}
	clear(c.unseen)
}

// podOf returns the pod that the StatefulSet creates, as admission completes it. Below
// the partition it has the revision that the last rollout completed.
func (c *Controllers) podOf(sts *appsv1.StatefulSet, name string, ordinal int) *corev1.Pod {
	hash := templateHash(sts)
	if _, known := c.templates[sts.Status.CurrentRevision]; known && ordinal < partitionOf(sts) {
		hash = sts.Status.CurrentRevision
	}
	template := c.templates[hash]
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: sts.Namespace, Name: name,
			Labels:      maps.Clone(template.Labels),
			Annotations: maps.Clone(template.Annotations),
		},
		Spec: *template.Spec.DeepCopy(),
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
	Admit(pod)
	OwnedBy(pod, "apps/v1", identity.RefOf(identity.KindStatefulSet, sts))
	if pod.Labels[lwsv1.WorkerIndexLabelKey] == "0" && c.hasWorkers(name) {
		pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: lwsv1.GroupReplacementGate}} // it runs once the gate is off
	}
	return pod
}

// hasWorkers reports whether a StatefulSet with the name of a leader has pods.
func (c *Controllers) hasWorkers(leader string) bool {
	return slices.ContainsFunc(All[*corev1.Pod](c.Objects), func(pod *corev1.Pod) bool {
		owner := metav1.GetControllerOf(pod)
		return owner != nil && owner.Kind == string(identity.KindStatefulSet) && owner.Name == leader
	})
}

func partitionOf(sts *appsv1.StatefulSet) int {
	if rolling := sts.Spec.UpdateStrategy.RollingUpdate; rolling != nil && rolling.Partition != nil {
		return int(*rolling.Partition)
	}
	return 0
}

// Admit completes a new pod as admission and the scheduler do.
func Admit(pod *corev1.Pod) {
	pod.Spec.NodeName = Node
	pod.Status.Phase = corev1.PodPending
	_, ordinal := identity.ParentAndOrdinal(pod.Name)
	if pod.Labels[lwsv1.WorkerIndexLabelKey] != "0" {
		pod.Labels[lwsv1.WorkerIndexLabelKey] = strconv.Itoa(ordinal)
		return
	}
	pod.Labels[lwsv1.GroupIndexLabelKey] = strconv.Itoa(ordinal)
	pod.Labels[lwsv1.GroupUniqueHashLabelKey] = identity.GroupKey(pod.Namespace, pod.Name)
}

func templateHash(sts *appsv1.StatefulSet) string {
	encoded, _ := json.Marshal(sts.Spec.Template)
	hash := fnv.New32a()
	_, _ = hash.Write(encoded)
	return hex.EncodeToString(hash.Sum(nil))
}

func (c *Controllers) podsOf(sts *appsv1.StatefulSet) []*corev1.Pod {
	pods := All[*corev1.Pod](c.Objects)
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return !metav1.IsControlledBy(pod, sts) })
}

// replaceOutdated deletes pods of old templates from the highest ordinal down to the
// partition: as many as maxUnavailable allows, or without it the first one, once all
// pods above it are ready.
func (c *Controllers) replaceOutdated(sts *appsv1.StatefulSet) {
	pods := map[int]*corev1.Pod{}
	for _, pod := range c.podsOf(sts) {
		_, ordinal := identity.ParentAndOrdinal(pod.Name)
		pods[ordinal] = pod
	}
	first, end := ordinals(sts)
	allowed := c.mayDelete(sts, pods)
	for ordinal := end - 1; ordinal >= max(first, partitionOf(sts)) && allowed > 0; ordinal-- {
		pod := pods[ordinal]
		outdated := pod != nil && pod.Labels[appsv1.ControllerRevisionHashLabelKey] != templateHash(sts)
		switch {
		case outdated && pod.DeletionTimestamp == nil:
			c.Remove(pod, metav1.DeletePropagationBackground)
			allowed--
		case c.WithoutMaxUnavailable && (pod == nil || !Ready(pod)):
			return
		}
	}
}

func ordinals(sts *appsv1.StatefulSet) (first, end int) {
	if sts.Spec.Ordinals != nil {
		first = int(sts.Spec.Ordinals.Start)
	}
	return first, first + int(*sts.Spec.Replicas)
}

// mayDelete returns how many pods may be deleted at once. Every pod that is not ready
// counts, whatever its ordinal.
func (c *Controllers) mayDelete(sts *appsv1.StatefulSet, pods map[int]*corev1.Pod) int {
	rolling := sts.Spec.UpdateStrategy.RollingUpdate
	if c.WithoutMaxUnavailable || rolling == nil || rolling.MaxUnavailable == nil {
		return 1
	}
	allowed := rolling.MaxUnavailable.IntValue()
	first, end := ordinals(sts)
	for ordinal := first; ordinal < end; ordinal++ {
		if pods[ordinal] == nil || !Ready(pods[ordinal]) {
			allowed--
		}
	}
	return allowed
}

func (c *Controllers) reportStatus(sts *appsv1.StatefulSet) {
	hash := templateHash(sts)
	status := appsv1.StatefulSetStatus{ObservedGeneration: sts.Generation, CurrentRevision: sts.Status.CurrentRevision, UpdateRevision: hash}
	updated := int32(0)
	for _, pod := range c.podsOf(sts) {
		status.Replicas++
		if Ready(pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] == hash {
			updated++
		}
	}
	status.UpdatedReplicas = updated
	done := updated == *sts.Spec.Replicas && status.ReadyReplicas == updated && status.Replicas == updated
	if done || status.CurrentRevision == "" {
		status.CurrentRevision = hash
	}
	if !reflect.DeepEqual(status, sts.Status) {
		Edit(c.Server, sts.Name, func(sts *appsv1.StatefulSet) { sts.Status = status })
	}
}

// Ready reports whether a pod runs and is not terminating.
func Ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
}

// Run takes one pod a step further as a kubelet does: it starts or ends the pod.
func (c *Controllers) Run(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		switch {
		case pod.Status.Phase == corev1.PodRunning:
			Edit(c.Server, pod.Name, Down)
			return
		case len(pod.Finalizers) == 0:
			delete(c.Objects, NameOf(pod))
		case pod.Spec.NodeName != "":
			Edit(c.Server, pod.Name, func(pod *corev1.Pod) { pod.Spec.NodeName = "" })
		}
		return
	}
	if over(pod) || len(pod.Spec.SchedulingGates) > 0 || c.Now.Before(pod.CreationTimestamp.Add(c.Starts)) {
		return
	}
	if pod.Status.Phase != corev1.PodRunning || len(pod.Status.Conditions) == 0 {
		Edit(c.Server, pod.Name, func(pod *corev1.Pod) {
			Up(pod)
			pod.Status.Conditions[0].LastTransitionTime = metav1.NewTime(c.Now)
		})
	}
}

// Up makes a pod run and ready.
func Up(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// Down makes a deleted pod fail within its grace period: a kubelet removes a pod only
// after that.
func Down(pod *corev1.Pod) {
	grace := int64(30)
	pod.Status.Phase = corev1.PodFailed
	pod.DeletionGracePeriodSeconds = &grace
}

// Collect processes one object as the garbage collector does.
func (c *Controllers) Collect(object client.Object) {
	switch {
	case slices.Contains(object.GetFinalizers(), metav1.FinalizerOrphanDependents):
		for _, dependent := range c.dependents(object) {
			abandoned, _ := dependent.DeepCopyObject().(client.Object)
			abandoned.SetOwnerReferences(nil)
			c.Put(abandoned)
		}
		c.Release(object, metav1.FinalizerOrphanDependents)
	case slices.Contains(object.GetFinalizers(), metav1.FinalizerDeleteDependents):
		c.collectBelow(object)
	case object.GetDeletionTimestamp() == nil && c.abandoned(object):
		c.Remove(object, metav1.DeletePropagationBackground)
	}
}

func (c *Controllers) collectBelow(object client.Object) {
	dependents := c.dependents(object)
	for _, dependent := range dependents {
		if dependent.GetDeletionTimestamp() != nil {
			continue
		}
		how := metav1.DeletePropagationBackground
		if len(c.dependents(dependent)) > 0 {
			how = metav1.DeletePropagationForeground
		}
		c.Remove(dependent, how)
	}
	if len(dependents) == 0 {
		c.Release(object, metav1.FinalizerDeleteDependents)
	}
}

func (c *Controllers) dependents(object client.Object) []client.Object {
	all := All[client.Object](c.Objects)
	return slices.DeleteFunc(all, func(o client.Object) bool {
		return !slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == object.GetUID() })
	})
}

func (c *Controllers) abandoned(object client.Object) bool {
	owners := object.GetOwnerReferences()
	for _, owner := range owners {
		found := c.Of(identity.OwnerRef(object.GetNamespace(), owner))
		if found != nil && found.GetUID() == owner.UID {
			return false
		}
	}
	return len(owners) > 0
}

const (
	retain = appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	// inUse is the finalizer that keeps a PVC while a pod uses it.
	inUse = "kubernetes.io/pvc-protection"
)

// Volumes gives each pod of a set a PVC of the template data, with a retention policy.
func Volumes(whenDeleted, whenScaled appsv1.PersistentVolumeClaimRetentionPolicyType) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		template := &set.Spec.LeaderWorkerTemplate
		template.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		template.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
			WhenDeleted: whenDeleted, WhenScaled: whenScaled,
		}
	}
}

// ensureClaims creates the PVCs of a pod, and reports whether the pod may be created.
func (c *Controllers) ensureClaims(sts *appsv1.StatefulSet, pod string) bool {
	for _, template := range sts.Spec.VolumeClaimTemplates {
		name := template.Name + "-" + pod
		standing := Find[*corev1.PersistentVolumeClaim](c.Server, name)
		switch {
		case standing == nil:
			Add(c.Server, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: sts.Namespace, Name: name, Labels: maps.Clone(sts.Spec.Selector.MatchLabels), Finalizers: []string{inUse},
			}})
		case standing.DeletionTimestamp != nil:
			c.blocked[sts.UID] = wakers(sts)
			return false
		case retentionOf(sts).WhenScaled == remove && ownerNamed(standing, "Pod", pod) != "":
			return false // the garbage collector deletes it: its owner, an earlier pod, is gone
		}
	}
	return true
}

// ownClaims sets the ownerReferences on the PVCs of a StatefulSet's pods that its
// retention policy asks for, as the StatefulSet controller does.
func (c *Controllers) ownClaims(sts *appsv1.StatefulSet) {
	first, end := ordinals(sts)
	for _, pod := range c.podsOf(sts) {
		_, ordinal := identity.ParentAndOrdinal(pod.Name)
		for _, template := range sts.Spec.VolumeClaimTemplates {
			if claim := Find[*corev1.PersistentVolumeClaim](c.Server, template.Name+"-"+pod.Name); claim != nil {
				c.ownClaim(sts, pod, claim, ordinal < first || ordinal >= end)
			}
		}
	}
}

func (c *Controllers) ownClaim(sts *appsv1.StatefulSet, pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, scaledAway bool) {
	policy := retentionOf(sts)
	for _, owner := range []struct {
		kind, name string
		uid        types.UID
	}{{"StatefulSet", sts.Name, sts.UID}, {"Pod", pod.Name, pod.UID}} {
		if uid := ownerNamed(claim, owner.kind, owner.name); uid != "" && uid != owner.uid {
			return // owned by an earlier incarnation: the garbage collector deletes it
		}
	}
	others := slices.DeleteFunc(slices.Clone(claim.OwnerReferences), func(o metav1.OwnerReference) bool { return o.UID == sts.UID || o.UID == pod.UID })
	managed := slices.ContainsFunc(others, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	want := others
	switch {
	case managed && (policy.WhenDeleted == remove || policy.WhenScaled == remove):
	case policy.WhenScaled == remove && scaledAway:
		want = append(want, *metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod")))
	case policy.WhenDeleted == remove:
		want = append(want, *metav1.NewControllerRef(sts, appsv1.SchemeGroupVersion.WithKind("StatefulSet")))
	}
	if !equality.Semantic.DeepEqual(want, claim.OwnerReferences) {
		Edit(c.Server, claim.Name, func(claim *corev1.PersistentVolumeClaim) { claim.OwnerReferences = want })
	}
}

func retentionOf(sts *appsv1.StatefulSet) appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy {
	if policy := sts.Spec.PersistentVolumeClaimRetentionPolicy; policy != nil {
		return *policy
	}
	return appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: retain, WhenScaled: retain}
}

func ownerNamed(object metav1.Object, kind, name string) types.UID {
	for _, owner := range object.GetOwnerReferences() {
		if owner.Kind == kind && owner.Name == name {
			return owner.UID
		}
	}
	return ""
}

// Protect removes the finalizer from terminating PVCs that no pod uses. A terminating pod
// that its kubelet has ended uses no PVC, even while a finalizer keeps the pod.
func (c *Controllers) Protect() {
	for _, claim := range All[*corev1.PersistentVolumeClaim](c.Objects) {
		used := slices.ContainsFunc(All[*corev1.Pod](c.Objects), func(pod *corev1.Pod) bool {
			ended := pod.DeletionTimestamp != nil && pod.Spec.NodeName == ""
			return strings.HasSuffix(claim.Name, "-"+pod.Name) && !ended
		})
		if claim.DeletionTimestamp != nil && !used {
			c.Release(claim, inUse)
		}
	}
}
