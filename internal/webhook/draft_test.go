package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

const (
	leaderPath = "spec.leaderWorkerTemplate.leaderTemplate"
	workerPath = "spec.leaderWorkerTemplate.workerTemplate"
)

// server answers dry runs, and counts them.
type server struct {
	calls  int
	answer func(context.Context, client.Object) error
}

// judges finds each container name in capitals invalid, and each claim template without access modes.
func judges(_ context.Context, object client.Object) error {
	var faults field.ErrorList
	var template *corev1.PodTemplateSpec
	switch object := object.(type) {
	case *appsv1.Deployment:
		template = &object.Spec.Template
	case *appsv1.StatefulSet:
		template = &object.Spec.Template
		for i := range object.Spec.VolumeClaimTemplates {
			if len(object.Spec.VolumeClaimTemplates[i].Spec.AccessModes) == 0 {
				faults = append(faults, field.Required(field.NewPath("spec", "volumeClaimTemplates").Index(i).Child("spec", "accessModes"), "one"))
			}
		}
	}
	for i, container := range template.Spec.Containers {
		if strings.ToLower(container.Name) != container.Name {
			faults = append(faults, field.Invalid(field.NewPath("spec", "template", "spec", "containers").Index(i).Child("name"), container.Name, "no label"))
		}
	}
	if len(faults) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: "apps", Kind: "StatefulSet"}, "w-x", faults)
}

func (s *server) validate(t *testing.T, is, was *lwsv1.LeaderWorkerSet) *admissionv1.AdmissionResponse {
	t.Helper()
	old, operation := "", admissionv1.Create
	if was != nil {
		old, operation = encoded(t, was), admissionv1.Update
	}
	sets := Sets{DryRun: func(ctx context.Context, object client.Object) error {
		s.calls++
		expect.That(t, object.GetName() == "" && object.GetGenerateName() != "" && object.GetNamespace() == is.Namespace,
			"the dry run is of %s/%q, generated %q", object.GetNamespace(), object.GetName(), object.GetGenerateName())
		return s.answer(ctx, object)
	}}
	var request admissionv1.AdmissionReview
	expect.OK(t, json.Unmarshal([]byte(review(operation, setKind, encoded(t, is), old)), &request))
	response := handlers(sets, Pods{Kin: &kin{}})[PathValidateSet](t.Context(), admission.Request{AdmissionRequest: *request.Request})
	return &response.AdmissionResponse
}

func encoded(t *testing.T, set *lwsv1.LeaderWorkerSet) string {
	t.Helper()
	return string(expect.Value(json.Marshal(set))(t))
}

type edit = func(*lwsv1.LeaderWorkerSet)

func named(name string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Name = name
	}
}

func ledBy(name string) edit {
	return func(set *lwsv1.LeaderWorkerSet) {
		leader := fakeapi.Template("leader", "image:1")
		leader.Spec.Containers[0].Name = name
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = &leader
	}
}

func claiming(set *lwsv1.LeaderWorkerSet) {
	set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
}

func lone(set *lwsv1.LeaderWorkerSet) { set.Spec.LeaderWorkerTemplate.Size = fakeapi.Ptr(int32(1)) }

func hashed(set *lwsv1.LeaderWorkerSet) { set.Spec.GroupIdentity = lwsv1.HashGroupIdentity }

func edited(edits ...edit) *lwsv1.LeaderWorkerSet { return fakeapi.Set("w", 2, 4, edits...) }

// What no StatefulSet can run is refused where the user wrote it, and on an update only what the update makes wrong.
func TestATemplateThatKubernetesRefusesIsRefused(t *testing.T) {
	const name, modes = ".spec.containers[0].name", "spec.leaderWorkerTemplate.volumeClaimTemplates[0].spec.accessModes"
	for what, tt := range map[string]struct {
		is, was *lwsv1.LeaderWorkerSet
		calls   int
		refused []string
		warned  string
	}{
		"a good set":                             {is: edited(), calls: 2},
		"workers and leaders of one template":    {is: edited(named("Main")), calls: 2, refused: []string{workerPath + name}},
		"workers alone":                          {is: edited(named("Main"), ledBy("l")), calls: 2, refused: []string{workerPath + name}},
		"leaders alone":                          {is: edited(ledBy("L")), calls: 2, refused: []string{leaderPath + name}},
		"both":                                   {is: edited(named("Main"), ledBy("L")), calls: 2, refused: []string{leaderPath + name, workerPath + name}},
		"claims":                                 {is: edited(claiming), calls: 2, refused: []string{modes}},
		"a lone leader":                          {is: edited(named("Main"), lone), calls: 1, refused: []string{workerPath + name}},
		"workers that are not made":              {is: edited(named("Main"), ledBy("l"), lone), calls: 1},
		"leaders with keys":                      {is: edited(ledBy("L"), hashed), calls: 2, refused: []string{leaderPath + name}},
		"workers with keys":                      {is: edited(named("Main"), ledBy("l"), hashed), calls: 2, refused: []string{workerPath + name}},
		"an update":                              {is: edited(named("Main")), was: edited(), calls: 4, refused: []string{workerPath + name}},
		"an update that mends":                   {is: edited(), was: edited(named("Main")), calls: 2},
		"a stored fault and a good change":       {is: edited(named("Main"), ledBy("l")), was: edited(named("Main")), calls: 4, warned: workerPath + name},
		"a stored fault and a new one":           {is: edited(named("Main"), ledBy("L")), was: edited(named("Main")), calls: 4, refused: []string{leaderPath + name}, warned: workerPath + name},
		"a stored fault and no change":           {is: edited(named("Main")), was: edited(named("Main"))},
		"workers that are made from now on":      {is: edited(named("Main"), ledBy("l")), was: edited(named("Main"), ledBy("l"), lone), calls: 3, refused: []string{workerPath + name}},
		"a stored fault and another of replicas": {is: edited(named("Main"), func(s *lwsv1.LeaderWorkerSet) { s.Spec.Replicas = fakeapi.Ptr(int32(9)) }), was: edited(named("Main"))},
		"a stored fault and a pause": {
			is: edited(named("Main"), fakeapi.Annotation(lwsv1.PausedAnnotationKey, "true")), was: edited(named("Main")),
		},
		"a stored fault and a label":      {is: edited(named("Main"), func(s *lwsv1.LeaderWorkerSet) { s.Labels = map[string]string{"a": "b"} }), was: edited(named("Main"))},
		"a stored fault and a finalizer":  {is: edited(named("Main")), was: edited(named("Main"), func(s *lwsv1.LeaderWorkerSet) { s.Finalizers = []string{"example.com/f"} })},
		"a status":                        {is: edited(named("Main"), func(s *lwsv1.LeaderWorkerSet) { s.Status.Replicas = 2 }), was: edited(named("Main"))},
		"a change of a set that is going": {is: edited(named("Main"), func(s *lwsv1.LeaderWorkerSet) { s.DeletionTimestamp = fakeapi.Ptr(metav1.Unix(9, 0)) }), was: edited()},
	} {
		s := &server{answer: judges}
		response := s.validate(t, tt.is, tt.was)
		warnings := strings.Join(response.Warnings, "\n")
		if s.calls != tt.calls || response.Allowed != (len(tt.refused) == 0) || strings.Contains(warnings, tt.warned) != true || tt.warned == "" && warnings != "" {
			t.Errorf("%s: allowed %t after %d dry runs with warnings %q", what, response.Allowed, s.calls, warnings)
		}
		expect.That(t, response.Allowed || strings.Count(response.Result.Message, "; ")+1 == len(tt.refused),
			"%s: got %+v", what, response)
		for _, path := range tt.refused {
			expect.Says(t, response.Result.Message, path+": ", what)
		}
	}
}

// An answer about anything but a template refuses no set, whichever set was stored before.
func TestAnotherAnswerToADryRunIsAWarning(t *testing.T) {
	sets := schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	invalid := func(path, message string) error {
		err := apierrors.NewInvalid(schema.GroupKind{Kind: "StatefulSet"}, "w", field.ErrorList{field.Required(field.NewPath(path), "")})
		err.ErrStatus.Message = message
		return err
	}
	late := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for what, answer := range map[string]func(context.Context) error{
		"a missing right": func(context.Context) error { return apierrors.NewForbidden(sets, "w", errors.New("no")) },
		"a field of ours": func(context.Context) error { return invalid("metadata.ownerReferences[0].uid", "bad") },
		"another field":   func(context.Context) error { return invalid("spec.serviceName", "bad") },
		"a webhook": func(context.Context) error {
			return invalid("spec.template.spec.containers[0].name", `admission webhook "x" denied the request: no`)
		},
		"a policy":           func(context.Context) error { return apierrors.NewInvalid(schema.GroupKind{}, "w", nil) },
		"too many requests":  func(context.Context) error { return apierrors.NewTooManyRequests("later", 1) },
		"an error":           func(context.Context) error { return apierrors.NewInternalError(errors.New(strings.Repeat("é", 999))) },
		"no API server":      func(context.Context) error { return errors.New("connection refused") },
		"a hook without dry": func(context.Context) error { return apierrors.NewBadRequest("does not support dry run") },
		"none in time":       late,
	} {
		for _, was := range []*lwsv1.LeaderWorkerSet{nil, edited(ledBy("l"))} {
			synctest.Test(t, func(t *testing.T) {
				s := &server{answer: func(ctx context.Context, _ client.Object) error { return answer(ctx) }}
				response := s.validate(t, edited(), was)
				expect.That(t, response.Allowed && len(response.Warnings) > 0 && len(response.Warnings[0]) <= 512,
					"%s: got %+v", what, response)
			})
		}
	}
}

// Without an answer about the stored set, it may have the fault too. A quota is asked after validation.
func TestAStoredSetThatCannotBeJudgedRefusesNothing(t *testing.T) {
	for what, tt := range map[string]struct {
		stored  error
		allowed bool
	}{
		"no answer": {errors.New("connection refused"), true},
		"a quota":   {apierrors.NewForbidden(schema.GroupResource{}, "w", errors.New("exceeded quota")), false},
	} {
		s := &server{}
		s.answer = func(ctx context.Context, object client.Object) error {
			if s.calls > 2 {
				return tt.stored
			}
			return judges(ctx, object)
		}
		response := s.validate(t, edited(named("Main")), edited())
		expect.That(t, response.Allowed == tt.allowed && tt.allowed == (len(response.Warnings) > 0) &&
			(tt.allowed || response.Result.Code == http.StatusForbidden), "%s: got %+v", what, response)
	}
}
