package lwstest

import (
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws"
)

// Node is where every fake pod runs.
const Node = "node-0"

// FakeControllers is a fake of the controllers of a cluster: StatefulSets, the
// garbage collector and a kubelet. Each step does one thing.
type FakeControllers struct {
	*FakeStore
	// blocked holds, for each StatefulSet that met a taken name, what it was
	// when it did: it does not try again until it changes.
	blocked map[types.UID]string
}

// Control returns controllers for a store.
func Control(s *FakeStore) *FakeControllers {
	return &FakeControllers{FakeStore: s, blocked: map[types.UID]string{}}
}

// Sync has the StatefulSet controller look at one StatefulSet.
func (c *FakeControllers) Sync(sts *appsv1.StatefulSet) {
	if sts.DeletionTimestamp != nil {
		return
	}
	first, count := 0, int(*sts.Spec.Replicas)
	if sts.Spec.Ordinals != nil {
		first = int(sts.Spec.Ordinals.Start)
	}
	if c.blocked[sts.UID] != wakers(sts) {
		delete(c.blocked, sts.UID)
		c.ensurePods(sts, first, count)
	}
	for _, pod := range c.podsOf(sts) {
		if _, ordinal := identity.ParentAndOrdinal(pod.Name); ordinal >= first+count && pod.DeletionTimestamp == nil {
			c.Remove(pod, metav1.DeletePropagationBackground)
		}
	}
	c.replaceOutdated(sts)
	c.reportStatus(sts)
}

// wakers is what, when it changes, ends the back-off of a StatefulSet.
func wakers(sts *appsv1.StatefulSet) string {
	return "at " + strconv.FormatInt(sts.Generation, 10) + sts.Annotations[lws.NudgeAnnotationKey]
}

// ensurePods makes missing pods in batches of 1, 2, 4, … and ends with the first
// batch in which a name is taken.
func (c *FakeControllers) ensurePods(sts *appsv1.StatefulSet, first, count int) {
	for start, batch := 0, 1; start < count; start, batch = start+batch, batch*2 {
		for i := start; i < min(start+batch, count); i++ {
			c.ensurePod(sts, first+i)
		}
		if c.blocked[sts.UID] != "" {
			break
		}
	}
	if c.Now.Sub(sts.CreationTimestamp.Time) <= time.Second {
		delete(c.blocked, sts.UID) // the back-off is short yet
	}
}

func (c *FakeControllers) ensurePod(sts *appsv1.StatefulSet, ordinal int) {
	name := sts.Name + "-" + strconv.Itoa(ordinal)
	standing := Find[*corev1.Pod](c.FakeStore, name)
	if standing == nil {
		Add(c.FakeStore, podOf(sts, name))
		return
	}
	if !metav1.IsControlledBy(standing, sts) {
		c.blocked[sts.UID] = wakers(sts)
	}
}

// podOf is the pod that the StatefulSet makes, as admission completes it.
func podOf(sts *appsv1.StatefulSet, name string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: sts.Namespace, Name: name,
			Labels:      maps.Clone(sts.Spec.Template.Labels),
			Annotations: maps.Clone(sts.Spec.Template.Annotations),
		},
		Spec: *sts.Spec.Template.Spec.DeepCopy(),
	}
	pod.Labels[appsv1.ControllerRevisionHashLabelKey] = templateHash(sts)
	Admit(pod)
	OwnedBy(pod, "apps/v1", identity.RefOf(identity.KindStatefulSet, sts))
	return pod
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

func (c *FakeControllers) podsOf(sts *appsv1.StatefulSet) []*corev1.Pod {
	pods := All[*corev1.Pod](c.Objects)
	return slices.DeleteFunc(pods, func(pod *corev1.Pod) bool { return !metav1.IsControlledBy(pod, sts) })
}

// replaceOutdated deletes the last pod of an old template once all are up.
func (c *FakeControllers) replaceOutdated(sts *appsv1.StatefulSet) {
	pods := c.podsOf(sts)
	if len(pods) != int(*sts.Spec.Replicas) || slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !Ready(pod) }) {
		return
	}
	for _, pod := range slices.Backward(pods) {
		if pod.Labels[appsv1.ControllerRevisionHashLabelKey] != templateHash(sts) {
			c.Remove(pod, metav1.DeletePropagationBackground)
			return
		}
	}
}

func (c *FakeControllers) reportStatus(sts *appsv1.StatefulSet) {
	hash := templateHash(sts)
	status := appsv1.StatefulSetStatus{ObservedGeneration: sts.Generation, CurrentRevision: hash, UpdateRevision: hash}
	for _, pod := range c.podsOf(sts) {
		status.Replicas++
		if Ready(pod) {
			status.ReadyReplicas++
			status.AvailableReplicas++
		}
		if old := pod.Labels[appsv1.ControllerRevisionHashLabelKey]; old != hash {
			status.CurrentRevision = old
		}
	}
	if !reflect.DeepEqual(status, sts.Status) {
		Edit(c.FakeStore, sts.Name, func(sts *appsv1.StatefulSet) { sts.Status = status })
	}
}

// Ready tells whether a pod is up and staying.
func Ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning
}

// Run has the kubelet take one pod a step further: up, or out.
func (c *FakeControllers) Run(pod *corev1.Pod) {
	if pod.DeletionTimestamp != nil {
		if len(pod.Finalizers) == 0 {
			delete(c.Objects, NameOf(pod))
		} else if pod.Spec.NodeName != "" {
			Edit(c.FakeStore, pod.Name, func(pod *corev1.Pod) { pod.Spec.NodeName = "" })
		}
		return
	}
	if pod.Status.Phase != corev1.PodRunning || len(pod.Status.Conditions) == 0 {
		Edit(c.FakeStore, pod.Name, Up)
	}
}

// Up has a pod run and be ready.
func Up(pod *corev1.Pod) {
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

// Collect has the garbage collector look at one object.
func (c *FakeControllers) Collect(object client.Object) {
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

func (c *FakeControllers) collectBelow(object client.Object) {
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

func (c *FakeControllers) dependents(object client.Object) []client.Object {
	all := All[client.Object](c.Objects)
	return slices.DeleteFunc(all, func(o client.Object) bool {
		return !slices.ContainsFunc(o.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == object.GetUID() })
	})
}

func (c *FakeControllers) abandoned(object client.Object) bool {
	owners := object.GetOwnerReferences()
	for _, owner := range owners {
		found := c.of(identity.OwnerRef(object.GetNamespace(), owner))
		if found != nil && found.GetUID() == owner.UID {
			return false
		}
	}
	return len(owners) > 0
}
