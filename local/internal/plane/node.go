package plane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/local/stages"
)

// Nodes with this annotation are kwok's; a real node lacks it.
const simulatedKey, simulatedValue = "kwok.x-k8s.io/node", "fake"

// RackLabel names a node's rack, the topology level below the zone.
const RackLabel = "local.lockstep.dev/rack"

// A rack holds four nodes and a zone is every third rack.
const nodesPerRack, zones = 4, 3

// simulatedNode is node number i, which its manifest describes. kwok stands in for its kubelet at a port.
func simulatedNode(i, port int) *corev1.Node {
	node, rack, now := decoded[corev1.Node]("node.yaml"), i/nodesPerRack, metav1.Now()
	node.Name = nodeName(i)
	node.Labels[corev1.LabelHostname] = node.Name
	node.Labels[corev1.LabelTopologyZone] = fmt.Sprintf("zone-%c", 'a'+rack%zones)
	node.Labels[RackLabel] = fmt.Sprintf("rack-%02d", rack)
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.64.%d.%d", i/250, i%250+1)},
		{Type: corev1.NodeHostName, Address: node.Name}, {Type: corev1.NodeExternalIP, Address: Loopback},
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	for i := range node.Status.Conditions {
		node.Status.Conditions[i].LastHeartbeatTime, node.Status.Conditions[i].LastTransitionTime = now, now
	}
	return node
}

// createNode creates node number i, and takes the taint off it that admission puts on every new node.
func createNode(ctx context.Context, client kubernetes.Interface, i, port int) error {
	nodes := client.CoreV1().Nodes()
	node, err := nodes.Create(ctx, simulatedNode(i, port), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		node, err = nodes.Get(ctx, nodeName(i), metav1.GetOptions{})
	}
	if err != nil || len(node.Spec.Taints) == 0 {
		return err
	}
	_, err = nodes.Patch(ctx, node.Name, types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	return err
}

func nodeName(i int) string { return fmt.Sprintf("node-%03d", i) }

func countNodes(ctx context.Context, client kubernetes.Interface) (*NodeStatus, error) {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return nil, err
	}
	count := &NodeStatus{Total: len(nodes.Items)}
	for i := range nodes.Items {
		if takesPods(&nodes.Items[i]) {
			count.Ready++
		}
	}
	return count, nil
}

// takesPods is more than Ready: a node has taints until the controller manager has seen that it is well again.
func takesPods(node *corev1.Node) bool {
	if len(node.Spec.Taints) > 0 {
		return false
	}
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// freeLeases lets a new kwok take its nodes at once. It would wait for the leases of the former
// one to run out otherwise, for 40 s, and look dead meanwhile. A kubelet creates its lease again.
func freeLeases(ctx context.Context, client kubernetes.Interface) error {
	return client.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// leasesHeld returns nil when kwok stands for every simulated node. A user may have added some and removed others.
func leasesHeld(ctx context.Context, client kubernetes.Interface) error {
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	leases, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	held := map[string]bool{}
	for _, lease := range leases.Items {
		held[lease.Name] = true
	}
	for _, node := range nodes.Items {
		if node.Annotations[simulatedKey] == simulatedValue && !held[node.Name] {
			return fmt.Errorf("the lease of node %q has no holder", node.Name)
		}
	}
	return nil
}

// Annotations that make kwok take its time over a pod's end.
const (
	hangOnDelete = "local.lockstep.dev/hang-on-delete"
	vanishAfter  = "local.lockstep.dev/vanish-after"
	replayed     = "local.lockstep.dev/replayed"
)

// replays are the rounds of replay.
var replays = wait.Backoff{Steps: 5, Duration: time.Second}

// replay has a new kwok take up what its predecessor left halfway. A pod that it hears of before it holds the node's
// lease is passed over, and not heard of again until it changes: so pods that are owed a step are changed.
func replay(ctx context.Context, client kubernetes.Interface) error {
	round := 0
	err := wait.ExponentialBackoffWithContext(ctx, replays, func(ctx context.Context) (isDone bool, err error) {
		pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, fmt.Errorf("list pods for kwok to take up: %w", err)
		}
		isDone = true
		round++
		for i := range pods.Items {
			if owedStep(&pods.Items[i]) {
				isDone = false
				err = errors.Join(err, touch(ctx, client, &pods.Items[i], round))
			}
		}
		return isDone, err
	})
	if wait.Interrupted(err) {
		return ctx.Err() // what is still there waits for something else
	}
	return err
}

// owedStep reports whether kwok owes a pod its next step now.
func owedStep(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" {
		return false
	}
	if pod.DeletionTimestamp == nil {
		return pod.Status.Phase == corev1.PodPending
	}
	_, slow := pod.Annotations[vanishAfter]
	return len(pod.Finalizers) == 0 && !slow && pod.Annotations[hangOnDelete] != "true"
}

func touch(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, round int) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"%d"}}}`, pod.UID, replayed, round)
	_, err := client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
		return nil // it took its step meanwhile
	}
	return err
}

// seed puts into an empty cluster what a user finds in it: storage classes, nodes, and a guard against kwok. A class
// binds a claim at once, and another waits for the pod.
func seed(ctx context.Context, client kubernetes.Interface, settings Settings, ports Ports) error {
	for _, name := range []string{"class-local.yaml", "class-wait.yaml"} {
		class := decoded[storagev1.StorageClass](name)
		if _, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); existsNot(err) {
			return err
		}
	}
	if settings.Stages != stages.Stock { // stock stages delete by name, unguarded
		if err := seedGuard(ctx, client.AdmissionregistrationV1()); err != nil {
			return err
		}
	}
	return seedNodes(ctx, client, settings.Nodes, ports.Kwok)
}

// existsNot is an error other than "already there": a create may be carried out although its answer is lost.
func existsNot(err error) bool { return err != nil && !apierrors.IsAlreadyExists(err) }

// decoded returns the object of a manifest. It panics on a mistake in one, which is compiled in.
func decoded[T any](name string) *T {
	object := new(T)
	if err := yaml.UnmarshalStrict([]byte(manifest(name)), object); err != nil {
		panic(err)
	}
	return object
}

// seedGuard makes up for a difference between kwok and a kubelet: see its manifest.
func seedGuard(ctx context.Context, admission admissionclient.AdmissionregistrationV1Interface) error {
	policy := decoded[admissionv1.ValidatingAdmissionPolicy]("guard.yaml")
	if _, err := admission.ValidatingAdmissionPolicies().Create(ctx, policy, metav1.CreateOptions{}); existsNot(err) {
		return err
	}
	binding := decoded[admissionv1.ValidatingAdmissionPolicyBinding]("guard-binding.yaml")
	_, err := admission.ValidatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
	if existsNot(err) {
		return err
	}
	return nil
}

// seedNodes creates nodes 16 at a time, so that hundreds take seconds.
func seedNodes(ctx context.Context, client kubernetes.Interface, count, port int) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, 16, count, func(i int) {
		if err := createNode(ctx, client, i, port); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}

// seedAccounts creates the service accounts that the API server's own policy
// gives the controllers' rights to. The controller manager would create them
// too, one after the other under its client limit, for five seconds.
func seedAccounts(ctx context.Context, client kubernetes.Interface) error {
	bindings, err := client.RbacV1().ClusterRoleBindings().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, binding := range bindings.Items {
		if !strings.HasPrefix(binding.Name, "system:controller:") {
			continue
		}
		for _, subject := range binding.Subjects { // service accounts
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: subject.Namespace, Name: subject.Name}}
			if _, err := client.CoreV1().ServiceAccounts(subject.Namespace).Create(ctx, account, metav1.CreateOptions{}); existsNot(err) {
				return err
			}
		}
	}
	return nil
}
