package lws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
	lwsrevision "lockstep.dev/lockstep/internal/lws/revision"
)

var (
	key = types.NamespacedName{Namespace: "ns", Name: "llama"}
	now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
)

func imageSet(image string, edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	size := int32(2)
	set := &lwsv1.LeaderWorkerSet{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "set"}}
	set.Spec.LeaderWorkerTemplate = lwsv1.LeaderWorkerTemplate{Size: &size, WorkerTemplate: template(image)}
	admission.Default(set)
	for _, edit := range edits {
		edit(set)
	}
	return set
}

func template(image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "serve", Image: image}}}}
}

func paused(set *lwsv1.LeaderWorkerSet) {
	metav1.SetMetaDataAnnotation(&set.ObjectMeta, lwsv1.PausedAnnotationKey, "true")
}

func because(cause string) func(*lwsv1.LeaderWorkerSet) {
	return func(set *lwsv1.LeaderWorkerSet) {
		metav1.SetMetaDataAnnotation(&set.ObjectMeta, lwsrevision.ChangeCauseAnnotationKey, cause)
	}
}

// revisionOf is the revision that the operator creates for a set.
func revisionOf(t *testing.T, set *lwsv1.LeaderWorkerSet, number int64) *appsv1.ControllerRevision {
	t.Helper()
	data, err := lwsrevision.Data(set)
	if err != nil {
		t.Fatal(err)
	}
	hash := lwsrevision.Key(data)
	r := &appsv1.ControllerRevision{Revision: number, Data: runtime.RawExtension{Raw: data}}
	r.ObjectMeta = owned(metaOf(fmt.Sprintf("%s-%s-%d", set.Name, hash, number), hash), "LeaderWorkerSet", set.Name, string(set.UID))
	r.Labels = map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: hash}
	r.Annotations = set.Annotations
	return r
}

// filed moves a revision to the history, as the operator does with unused ones.
func filed(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
	delete(r.Labels, lwsv1.SetNameLabelKey)
	r.Labels[lwsrevision.HistoryLabelKey] = "llama"
	return r
}

// world is a fake API server that records patches. A call of meanwhile comes before a patch, which is
// then answered by a conflict.
type world struct {
	client.Client
	patches   []map[string]any
	owners    []string
	meanwhile []func(client.Client)
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	w := &world{}
	inner := fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build()
	w.Client = interceptor.NewClient(inner, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if len(w.meanwhile) > 0 {
				do := w.meanwhile[0]
				w.meanwhile = w.meanwhile[1:]
				do(c)
				return apierrors.NewConflict(lwsv1.Resource("leaderworkersets"), object.GetName(), errors.New("changed"))
			}
			raw, err := patch.Data(object)
			if err != nil {
				return err
			}
			var written map[string]any
			if err := json.Unmarshal(raw, &written); err != nil {
				return err
			}
			all := client.PatchOptions{}
			all.ApplyOptions(options)
			w.patches, w.owners = append(w.patches, written), append(w.owners, all.FieldManager)
			return c.Patch(ctx, object, patch, options...)
		},
	})
	return w
}

func (w *world) editor() *Editor {
	return &Editor{Client: w.Client, DryRun: DryRunNone}
}

func (w *world) set(t *testing.T) *lwsv1.LeaderWorkerSet {
	t.Helper()
	set := &lwsv1.LeaderWorkerSet{}
	if err := w.Get(t.Context(), key, set); err != nil {
		t.Fatal(err)
	}
	return set
}

func image(set *lwsv1.LeaderWorkerSet) string {
	return set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image
}
