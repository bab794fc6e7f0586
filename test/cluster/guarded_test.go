package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"lockstep.dev/lockstep/internal/pvc"
)

// guarded is a scene in whose cluster the deletion of claims in use is refused.
type guarded struct{ *scene }

// guard has the operator wait only a second for the last holder of a claim to come
// back. The policies that refuse were installed with it.
func guard(t *testing.T) {
	t.Helper()
	config := filepath.Join(t.TempDir(), "config.yaml")
	const text = "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\nprotection: {graceSeconds: 1, releaseTTLSeconds: 5, kinds: [" + shards + "]}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	restartOperator(t, "--config", config)
	t.Cleanup(func() { restartOperator(t) })
	awaitPolicies(t)
}

func restartOperator(t *testing.T, flags ...string) {
	t.Helper()
	if err := errors.Join(bed.operator.kill(), bed.operator.start(flags...)); err != nil {
		t.Fatal(err)
	}
}

// newGuarded makes a namespace in mode hold.
func newGuarded(t *testing.T) *guarded {
	t.Helper()
	s := &guarded{newScene(t)}
	bed.hasSet(s.namespace)
	s.patch(s.itself(), `{"metadata":{"labels":{"protection.lockstep.dev/mode":"hold"}}}`)
	t.Cleanup(s.giveUp)
	return s
}

// awaitPolicies returns when the policies act, and words stand where they should.
func awaitPolicies(t *testing.T) {
	t.Helper()
	s := newGuarded(t)
	probe := s.claim("probe", map[string]string{pvc.HoldAnnotation: "a probe"})
	s.awaitHeld(probe.Name)
	mallory := s.as("mallory")
	s.eventually("the deletion of what is held is refused, and so are forged words", func() error {
		deleted := s.client.Delete(t.Context(), probe.DeepCopy(), client.DryRunAll)
		forged := mallory.Patch(t.Context(), probe.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"protection.lockstep.dev/hold":"mine"}}}`)))
		copied := s.claimNamed("copied")
		copied.Annotations, copied.Spec = probe.Annotations, probe.Spec
		created := mallory.Create(t.Context(), copied, client.DryRunAll)
		if !refused(deleted) || !drillForbidden(forged, "guard.protection.lockstep.dev") || created != nil || len(copied.Annotations) > 0 {
			return fmt.Errorf("deleted: %w, forged: %w, created: %w %v", deleted, forged, created, copied.Annotations)
		}
		return nil
	})
	itself := s.awaitCounted()
	s.eventually("the deletion of its namespace is refused", func() error {
		if err := s.client.Delete(t.Context(), itself.DeepCopy(), client.DryRunAll); !namespaceRefused(err) {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}

// giveUp has the namespace go, whatever it holds.
func (s *guarded) giveUp() {
	ctx := context.Background()
	namespace := s.itself()
	if err := s.client.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
		return // gone already
	}
	token := fmt.Sprintf(`{"metadata":{"annotations":{"protection.lockstep.dev/release":%q}}}`, namespace.UID)
	if err := s.client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, []byte(token))); err != nil {
		s.Logf("release namespace %s: %v", s.namespace, err)
	}
}

func (s *guarded) itself() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}
}

// claim makes a claim of nobody's.
func (s *guarded) claim(name string, annotations map[string]string) *corev1.PersistentVolumeClaim {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	s.create(claim)
	return claim
}

// refused tells whether a deletion was refused for the sake of a holder.
func refused(err error) bool {
	return drillForbidden(err, "refuse-delete.protection.lockstep.dev")
}

// says waits until exactly these words stand on a claim.
func (s *guarded) says(name, words string) *corev1.PersistentVolumeClaim {
	s.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	s.eventually("claim "+name+" says "+words, func() error {
		err := s.client.Get(s.Context(), client.ObjectKey{Namespace: s.namespace, Name: name}, claim)
		return errors.Join(err, lacking("holders of "+name, words, claim.Annotations[pvc.HoldersAnnotation]))
	})
	return claim
}

// awaitHeld waits until the claims are held, by whomever.
func (s *guarded) awaitHeld(names ...string) {
	s.Helper()
	s.awaitWords("held", true, names...)
}

// awaitFree waits until nobody holds the claims.
func (s *guarded) awaitFree(names ...string) {
	s.Helper()
	s.awaitWords("free", false, names...)
}

func (s *guarded) awaitWords(what string, want bool, names ...string) {
	s.Helper()
	s.eventually(fmt.Sprintf("claims %v are %s", names, what), func() error {
		found, err := s.claims()
		for _, name := range names {
			claim := found[name]
			if claim == nil {
				return errors.Join(err, fmt.Errorf("there is no claim %s", name))
			}
			if words := claim.Annotations[pvc.HoldersAnnotation]; (words != "") != want {
				err = errors.Join(err, fmt.Errorf("claim %s says %q", name, words))
			}
		}
		return err
	})
}
