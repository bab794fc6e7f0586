package release

import (
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	clilws "lockstep.dev/lockstep/internal/cli/lws"
	"lockstep.dev/lockstep/internal/pvc"
	"lockstep.dev/lockstep/test/expect"
)

// A release is of one PVC of a namespace, or of one namespace.
func TestWhatIsReleased(t *testing.T) {
	held := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "prod", UID: "n", Annotations: map[string]string{pvc.HeldClaimsAnnotation: "3"}}}
	free := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "data", UID: "c"}}
	for args, want := range map[string]string{
		"ns/prod": "give --yes", "ns prod": "give --yes", "pvc/data": "pvc/data is not held", "pvc/other": "not found",
		"": "give one PVC", "pvc/data pvc/other": "give one PVC", "data": "is no PersistentVolumeClaim",
	} {
		r := &Release{
			Client:    fake.NewClientBuilder().WithScheme(clilws.Scheme()).WithObjects(held.DeepCopy(), free.DeepCopy()).Build(),
			Namespace: "prod", Out: io.Discard, ErrOut: io.Discard,
		}
		err := r.Read(strings.Fields(args))
		if err == nil {
			err = r.Run(t.Context())
			expect.Equalf(t, args == "pvc/other", apierrors.IsNotFound(err), "%q: %v", args, err)
		}
		expect.ErrorSays(t, err, want, args)
	}
}
