package undo_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/internal/lws/undo"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// history is the revisions of a set that had these images, in order.
func history(t *testing.T, images ...string) undo.Revisions {
	return func(*lwsv1.LeaderWorkerSet) (all []*appsv1.ControllerRevision, err error) {
		for i, image := range images {
			data := expect.Value(revision.Data(fakeapi.Set("llama", 1, 2, fakeapi.Image(image))))(t)
			all = append(all, &appsv1.ControllerRevision{Revision: int64(i + 1), Data: runtime.RawExtension{Raw: data}})
		}
		return all, nil
	}
}

func TestAnUpdateAsksForAnUndo(t *testing.T) {
	asked := func(number string) func(*lwsv1.LeaderWorkerSet) {
		return fakeapi.Annotation(lwsv1.UndoAnnotationKey, number)
	}
	for name, tt := range map[string]struct {
		is, was func(*lwsv1.LeaderWorkerSet)
		image   string
		err     string
	}{
		"not asked":        {image: "three"},
		"the previous one": {is: asked("0"), image: "two"},
		"a revision":       {is: asked("1"), image: "one"},
		"while paused": {
			is: func(set *lwsv1.LeaderWorkerSet) {
				asked("1")(set)
				fakeapi.Annotation(lwsv1.PausedAnnotationKey, lwsv1.PausedValue)(set)
			}, image: "one",
		},
		"the present one":         {is: asked("3"), image: "three"},
		"no such revision":        {is: asked("9"), err: `"llama" has no revision 9; there are: 1, 2, 3`},
		"no number":               {is: asked("last"), err: `metadata.annotations[lockstep.dev/undo-to-revision]: "last": give the number of a revision`},
		"a negative number":       {is: asked("-1"), err: "give the number of a revision"},
		"one that was stored":     {is: asked("1"), was: asked("1"), image: "three"},
		"another that was stored": {is: asked("2"), was: asked("1"), image: "three"},
	} {
		t.Run(name, func(t *testing.T) {
			set := func(edit func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
				made := fakeapi.Set("llama", 1, 2, fakeapi.Image("three"))
				if edit != nil {
					edit(made)
				}
				return made
			}
			after, err := undo.Requested(set(tt.is), set(tt.was), history(t, "one", "two", "three"))
			if tt.err != "" {
				expect.ErrorSays(t, err, tt.err)
				return
			}
			expect.OK(t, err)
			_, stays := after.Annotations[lwsv1.UndoAnnotationKey]
			if image := after.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Image; image != tt.image || stays {
				t.Errorf("got image %s, annotations %v; want %s", image, after.Annotations, tt.image)
			}
		})
	}
}
