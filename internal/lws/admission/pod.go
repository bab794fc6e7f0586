package admission

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	utilstrings "k8s.io/utils/strings"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/workload"
)

// MutatePod completes a pod of a set, in place, and leaves every other pod as it is. An error means that the pod must
// not be created. Done twice it changes nothing.
func MutatePod(pod *corev1.Pod) error {
	if _, ours := pod.Labels[lwsv1.SetNameLabelKey]; !ours {
		return nil
	}
	if len(pod.Name) > maxNameLength {
		return tooLong("name", pod, pod.Name)
	}
	if _, isSized := pod.Annotations[lwsv1.SizeAnnotationKey]; !isSized {
		return fmt.Errorf("size annotation is unexpectedly missing for pod %s", pod.Name)
	}
	groupSize, err := countAnnotation(pod, lwsv1.SizeAnnotationKey)
	if err != nil {
		return err
	}
	forgetTemplate(pod)
	delete(pod.Annotations, lwsv1.RecreateAnnotationKey) // a user asks a leader that exists
	place := placeWorker
	if IsLeader(pod) {
		place = placeLeader
	}
	for _, complete := range []func(*corev1.Pod, int) error{place, addTPUEnvironment, addEnvironment} {
		if err := complete(pod, groupSize); err != nil {
			return err
		}
	}
	return nil
}

// Gate holds a pod back until the pods of the group before it are gone: an old worker would join a new leader, and a
// leader would take room that the group is about to leave. A pod that has a node already takes no gate.
func Gate(pod *corev1.Pod) {
	isGate := func(gate corev1.PodSchedulingGate) bool { return gate.Name == lwsv1.GroupReplacementGate }
	if pod.Spec.NodeName == "" && !slices.ContainsFunc(pod.Spec.SchedulingGates, isGate) {
		pod.Spec.SchedulingGates = append(pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: lwsv1.GroupReplacementGate})
	}
}

// forgetTemplate removes the labels by which a template places a pod: it would place every pod alike, and all groups would
// have one address. A pod without a StatefulSet keeps its labels. Workers have those of their group from their StatefulSet.
func forgetTemplate(pod *corev1.Pod) {
	if madeBy(pod) == "" {
		return
	}
	if IsLeader(pod) {
		delete(pod.Labels, lwsv1.GroupIndexLabelKey)
		delete(pod.Labels, lwsv1.GroupUniqueHashLabelKey)
	}
	if _, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]; divided {
		delete(pod.Labels, lwsv1.SubGroupIndexLabelKey)
		delete(pod.Labels, lwsv1.SubGroupUniqueHashLabelKey)
	}
}

// IsLeader reports whether a new pod is a leader: the StatefulSet of leaders has the name of the
// set. A pod without a StatefulSet is a leader by its index, 0. Workers of a StatefulSet have that
// index only if a user wrote it into their template.
func IsLeader(pod *corev1.Pod) bool {
	if made := madeBy(pod); made != "" {
		return made == pod.Labels[lwsv1.SetNameLabelKey]
	}
	return pod.Labels[lwsv1.WorkerIndexLabelKey] == "0"
}

// madeBy is the name of the StatefulSet that made a pod, or empty.
func madeBy(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil && owner.Kind == string(identity.KindStatefulSet) {
		return owner.Name
	}
	return ""
}

// placeLeader tells a leader its group. Its index is that of a leader, whatever its template says.
func placeLeader(pod *corev1.Pod, groupSize int) error {
	pod.Labels[lwsv1.WorkerIndexLabelKey] = "0"
	if workload.IsHashLeader(pod) {
		placeHashLeader(pod)
		return placeInSubgroup(pod, pod.Name, groupSize, 0)
	}
	if _, known := pod.Labels[lwsv1.GroupIndexLabelKey]; !known {
		ordinal, err := podOrdinal(pod)
		if err != nil {
			return err
		}
		pod.Labels[lwsv1.GroupIndexLabelKey] = strconv.Itoa(ordinal)
	}
	if workload.HasOwnService(pod) {
		pod.Spec.Subdomain = pod.Name
	}
	if _, known := pod.Labels[lwsv1.GroupUniqueHashLabelKey]; !known {
		pod.Labels[lwsv1.GroupUniqueHashLabelKey] = identity.GroupKey(pod.Namespace, pod.Name)
	}
	excludeOthers(pod)
	return placeInSubgroup(pod, pod.Name, groupSize, 0)
}

// excludeOthers gives a leader a topology domain for its group alone, where its set asks for one.
func excludeOthers(leader *corev1.Pod) {
	if topology := leader.Annotations[lwsv1.ExclusiveKeyAnnotationKey]; topology != "" {
		SetExclusiveAffinities(leader, leader.Labels[lwsv1.GroupUniqueHashLabelKey], topology, lwsv1.GroupUniqueHashLabelKey)
	}
}

// placeWorker tells a worker its place in the group. The group it knows from its StatefulSet.
func placeWorker(pod *corev1.Pod, groupSize int) error {
	ordinal, err := podOrdinal(pod)
	if err != nil {
		return err
	}
	pod.Labels[lwsv1.WorkerIndexLabelKey] = strconv.Itoa(ordinal)
	return placeInSubgroup(pod, pod.Annotations[lwsv1.LeaderPodNameAnnotationKey], groupSize, ordinal)
}

func podOrdinal(pod *corev1.Pod) (int, error) {
	_, ordinal := identity.ParentAndOrdinal(pod.Name)
	if ordinal == identity.NoOrdinal {
		return 0, fmt.Errorf("parsing pod ordinal for pod %s", pod.Name)
	}
	return ordinal, nil
}

// countAnnotation reads an annotation that counts pods.
func countAnnotation(pod *corev1.Pod, key string) (int, error) {
	text := pod.Annotations[key]
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("annotation %s of pod %q is %q, want a whole number from 1 to 2147483647", key, pod.Name, shortened(text))
	}
	return int(n), nil
}

// maxNameLength bounds the names of pods and the addresses of leaders. The API server refuses longer ones anyway, but
// after this mutation, which copies them into every container: the square of a request.
const maxNameLength = validation.DNS1123SubdomainMaxLength

func tooLong(what string, pod *corev1.Pod, text string) error {
	return fmt.Errorf("%s of pod %q has %d characters, at most %d are allowed", what, shortened(pod.Name), len(text), maxNameLength)
}

// shortened is the beginning of a text of any length, to be quoted in an error.
func shortened(text string) string { return utilstrings.ShortenString(text, 64) }

// GatedDeletionCost makes a ReplicaSet delete a leader first that is not scheduled yet. It is taken
// off with the gate, unless it was changed.
const GatedDeletionCost = "-100"

// LacksKey reports whether a new leader is to get the key of its group. A further call of the webhook
// finds the key, and the host name that the first one gave with it: labels of the template alone are no key.
func LacksKey(pod *corev1.Pod) bool {
	return IsLeader(pod) && workload.IsHashLeader(pod) && (workload.HashKey(pod) == "" || pod.Spec.Hostname == "")
}

// SetKey gives a leader the key of its group, made from random characters. It tells groups apart and
// guards nothing.
func SetKey(leader *corev1.Pod, random string) {
	key := identity.GroupKey(leader.Namespace, random)
	metav1.SetMetaDataLabel(&leader.ObjectMeta, lwsv1.GroupIndexLabelKey, key)
	metav1.SetMetaDataLabel(&leader.ObjectMeta, lwsv1.GroupUniqueHashLabelKey, key)
}

// placeHashLeader writes its group onto a Hash leader, by its host name because it has no name yet. A gate keeps it from
// being scheduled until the set has room for it.
func placeHashLeader(pod *corev1.Pod) {
	pod.Spec.Hostname = cmp.Or(pod.Spec.Hostname, workload.HostName(pod))
	if workload.HasOwnService(pod) {
		pod.Spec.Subdomain = pod.Spec.Hostname
	}
	if _, divided := pod.Annotations[lwsv1.SubGroupSizeAnnotationKey]; divided { // those of the template are the same for all groups
		delete(pod.Labels, lwsv1.SubGroupIndexLabelKey)
		delete(pod.Labels, lwsv1.SubGroupUniqueHashLabelKey)
	}
	excludeOthers(pod)
	Gate(pod)
	if pod.Spec.NodeName == "" && pod.Annotations[corev1.PodDeletionCost] == "" {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, corev1.PodDeletionCost, GatedDeletionCost)
	}
}

// hostOfLeader is the host name of the leader of a pod's group: the name of the leader, unless it is a Hash group.
// A worker of a Hash group knows it from the address of its leader.
func hostOfLeader(pod *corev1.Pod, name string) string {
	switch {
	case workload.HashKey(pod) == "":
		return name
	case IsLeader(pod):
		return pod.Spec.Hostname
	}
	host, _, _ := strings.Cut(pod.Annotations[lwsv1.LeaderAddressAnnotationKey], ".")
	return cmp.Or(host, identity.HashName(pod.Labels[lwsv1.SetNameLabelKey], pod.Labels[lwsv1.GroupUniqueHashLabelKey]))
}

// addEnvironment gives every container what it needs to find its group. Ours
// come first, so that the user's variables can refer to them.
func addEnvironment(pod *corev1.Pod, groupSize int) error {
	ours, err := environment(pod, groupSize)
	if err != nil {
		return err
	}
	for _, container := range containersOf(&pod.Spec) {
		container.Env = firstOfEach(ours, container.Env)
	}
	return nil
}

// containersOf returns the containers of a pod, init containers last.
func containersOf(spec *corev1.PodSpec) (all []*corev1.Container) {
	for _, list := range [][]corev1.Container{spec.Containers, spec.InitContainers} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

func environment(pod *corev1.Pod, groupSize int) ([]corev1.EnvVar, error) {
	group, found := pod.Labels[lwsv1.GroupIndexLabelKey]
	if !found {
		//nolint:staticcheck // the text is part of the contract
		return nil, fmt.Errorf("Failure constructing environment variables, no group index label found for pod %s/%s", pod.Namespace, pod.Name)
	}
	address := hostOfLeader(pod, pod.Labels[lwsv1.SetNameLabelKey]+"-"+group) + "." + pod.Spec.Subdomain + "." + pod.Namespace
	if known := pod.Annotations[lwsv1.LeaderAddressAnnotationKey]; known != "" && !IsLeader(pod) {
		address = known
	}
	if len(address) > maxNameLength {
		return nil, tooLong("leader address", pod, address)
	}
	return []corev1.EnvVar{
		{Name: lwsv1.LwsLeaderAddress, Value: address},
		{Name: lwsv1.LwsGroupSize, Value: strconv.Itoa(groupSize)},
		{Name: lwsv1.LwsWorkerIndex, Value: pod.Labels[lwsv1.WorkerIndexLabelKey]},
	}, nil
}

// firstOfEach joins two lists and keeps, of every name, the first variable.
func firstOfEach(ours, theirs []corev1.EnvVar) []corev1.EnvVar {
	seen := make(map[string]bool, len(ours)+len(theirs))
	return slices.DeleteFunc(slices.Concat(ours, theirs), func(variable corev1.EnvVar) bool {
		isAgain := seen[variable.Name]
		seen[variable.Name] = true
		return isAgain
	})
}
