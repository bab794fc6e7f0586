package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	"lockstep.dev/lockstep/test/drill"
)

// clientLimit is the rate limit of the operator and of the controller manager while the
// release of PVCs is measured. The operator's burst is one.
const clientLimit = 100

// modeLabel chooses the mode of a namespace.
const modeLabel = "protection.lockstep.dev/mode"

// barrier is the operator's finalizer on claims.
const barrier = "protection.lockstep.dev/barrier"

// heldNodes are Node objects without a kubelet: a pod with the name of one is bound, and
// stays as it is.
const heldNodes = 10

// claimStage is a namespace with PVCs, and with pods that no kubelet runs.
type claimStage struct {
	*bed
	namespace string
	mark      int // where the audit log stood
}

func (b *bed) newClaimStage(ctx context.Context, labels map[string]string) (*claimStage, error) {
	namespace, err := b.newNamespace(ctx, labels)
	if err != nil {
		return nil, err
	}
	return &claimStage{bed: b, namespace: namespace}, nil
}

func (s *claimStage) remark() error {
	if err := s.audit.Sync(); err != nil {
		return err
	}
	s.mark = s.audit.Position()
	return nil
}

// since returns the matching requests in the namespace since the mark.
func (s *claimStage) since(match func(drill.Request) bool) []drill.Request {
	return s.audit.Kept(s.mark, func(r drill.Request) bool { return r.Namespace == s.namespace && match(r) })
}

// nodes creates the Nodes. The scheduler puts no pods there.
func (s *claimStage) nodes(ctx context.Context) error {
	for i := range heldNodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: heldNode(i)}, Spec: corev1.NodeSpec{Unschedulable: true}}
		if err := client.IgnoreAlreadyExists(s.client.Create(ctx, node)); err != nil {
			return err
		}
	}
	return nil
}

func heldNode(i int) string { return fmt.Sprintf("held-%d", i%heldNodes) }

// crowd creates bound pods, each with a PVC that is not released.
func (s *claimStage) crowd(ctx context.Context, pods int) error {
	return together(numbers(pods), func(i int) error {
		return s.client.Create(ctx, s.user(fmt.Sprintf("crowd-%d", i), i, fmt.Sprintf("of-crowd-%d", i)))
	})
}

// user returns a bound pod that uses PVCs. It tolerates the taints of its node.
func (s *claimStage) user(name string, node int, claims ...string) *corev1.Pod {
	spec := podSpec()
	spec.NodeName = heldNode(node)
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for i, claim := range claims {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprintf("v%d", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}, Spec: spec}
}

// claim returns a PVC for a volume that does not exist: the controllers of volumes do the
// least for it.
func (s *claimStage) claim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: new(string), VolumeName: "none",
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// heldClaims creates PVCs and pods that use them, and deletes the PVCs, which then wait for
// the pods.
func (s *claimStage) heldClaims(ctx context.Context, prefix string, claims, users int) error {
	names := claimNames(prefix, claims)
	if err := together(names, func(name string) error { return s.client.Create(ctx, s.claim(name)) }); err != nil {
		return err
	}
	each := (claims + users - 1) / users
	err := together(numbers(users), func(i int) error {
		return s.client.Create(ctx, s.user(userOf(prefix, i), i, names[i*each:min((i+1)*each, claims)]...))
	})
	if err != nil {
		return err
	}
	err = together(names, func(name string) error { return s.client.Delete(ctx, s.claim(name)) })
	if err != nil {
		return err
	}
	there, err := s.claimsBearing(ctx, prefix, "kubernetes.io/pvc-protection")
	if err == nil && there != claims {
		err = fmt.Errorf("%w: %d of %d claims wait for their users", errInvalid, there, claims)
	}
	return err
}

func (s *claimStage) letGo(ctx context.Context, user string) error {
	return s.client.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: user}}, client.GracePeriodSeconds(0))
}

func userOf(prefix string, i int) string { return fmt.Sprintf("user-of-%s-%d", prefix, i) }

func claimNames(prefix string, n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return names
}

func numbers(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// claimsBearing counts the PVCs of a prefix that have a finalizer; any with "".
func (s *claimStage) claimsBearing(ctx context.Context, prefix, finalizer string) (int, error) {
	list := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaimList"}}
	if err := s.client.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
		return 0, err
	}
	n := 0
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, prefix+"-") && (finalizer == "" || slices.Contains(list.Items[i].Finalizers, finalizer)) {
			n++
		}
	}
	return n, nil
}

// inMode sets the mode of the namespace, and returns once admission acts on it.
func (s *claimStage) inMode(ctx context.Context, mode string) error {
	document := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, modeLabel, mode)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
	if err := s.client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, document)); err != nil {
		return err
	}
	return s.until(ctx, "admission knows the mode "+mode, 1, func() (int, error) {
		probe := s.claim("probe")
		err := s.client.Create(ctx, probe, client.DryRunAll)
		if slices.Contains(probe.Finalizers, barrier) == (mode != "off") {
			return 1, err
		}
		return 0, err
	})
}

// until waits until a count is reached.
func (s *claimStage) until(ctx context.Context, what string, want int, count func() (int, error)) error {
	deadline := time.After(2*drill.Patience + time.Duration(want)*100*time.Millisecond)
	for {
		n, err := count()
		if err != nil || n >= want {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("%w: never came true: %s; %d of %d", errInvalid, what, n, want)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// byBuiltIn reports whether the built-in controller of PVCs sent a request.
func byBuiltIn(r drill.Request) bool { return strings.Contains(r.Agent, "pvc-protection-controller") }

// changesClaim reports whether a request changed a PVC.
func changesClaim(r drill.Request) bool {
	return r.Resource == "persistentvolumeclaims" && r.Subresource == "" && (r.Verb == "update" || r.Verb == "patch") && r.Code == http.StatusOK
}

// readsPods reports whether a request listed all pods, or one to learn the resourceVersion.
// Further pages of a list are not lists of their own.
func readsPods(r drill.Request) (all, one bool) {
	if r.Resource != "pods" || r.Verb != "list" {
		return false, false
	}
	asked, err := url.Parse(r.URI)
	if err != nil {
		return true, false
	}
	query := asked.Query()
	one = query.Get("limit") == "1"
	return !one && query.Get("continue") == "", one
}

// limited returns the flags of an operator with the client limit, in place of the built-in
// controller or beside it.
func (b *bed) limited(alone bool) ([]string, error) {
	path := filepath.Join(filepath.Dir(b.operator.Log), fmt.Sprintf("alone-%t.yaml", alone))
	text := fmt.Sprintf("apiVersion: %s\nkind: Configuration\nclientConnection: {qps: %d, burst: 1}\nprotection: {alone: %t}\n",
		v1alpha1.GroupVersion, clientLimit, alone)
	return append(slices.Clone(b.flags), "--config", path), os.WriteFile(path, []byte(text), 0o600)
}

// rerun ends the operator and starts it with other flags.
func (b *bed) rerun(ctx context.Context, flags []string) error {
	if err := b.operator.Check(); err == nil {
		if err := b.operator.Kill(); err != nil {
			return err
		}
	}
	if err := b.operator.Start(flags...); err != nil {
		return err
	}
	return b.rest(ctx)
}

// strike deletes the stage. Pods that no kubelet runs go at once.
func (s *claimStage) strike(ctx context.Context) error {
	if s.last {
		return nil
	}
	if err := s.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(s.namespace), client.GracePeriodSeconds(0)); err != nil {
		return err
	}
	if err := s.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}); err != nil {
		return err
	}
	return s.client.DeleteAllOf(ctx, &corev1.Node{}, client.MatchingFields{"spec.unschedulable": "true"})
}
