package integration

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/lws/admission"
)

// wantRefusal checks that an error refuses an object as invalid, with this text.
func wantRefusal(t *testing.T, err error, text string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("got %v, want a refusal as invalid", err)
	}
	if !strings.Contains(err.Error(), text) {
		t.Errorf("got  %v\nwant an error with %s", err, text)
	}
}

// The tests of config/crd check every rule. This one checks a rule of each sort on a real API server.
func TestDefinitionRefusesInvalidSets(t *testing.T) {
	namespace := shared(t).namespace()
	tests := []struct{ name, spec, text string }{
		{"startup policy", `{startupPolicy: Whenever}`, `spec.startupPolicy: Unsupported value: "Whenever": supported values: "LeaderCreated", "LeaderReady"`},
		{"termination policy", `{podTerminationPolicy: Serial}`, `spec.podTerminationPolicy: Unsupported value: "Serial": supported values: "Default", "Parallel"`},
		{"network without a policy", `{networkConfig: {}}`, `spec.networkConfig.subdomainPolicy: Required value`},
		{"size", `{leaderWorkerTemplate: {size: 0}}`, `spec.leaderWorkerTemplate.size: Invalid value: 0: size must be equal or greater than 1`},
		{"number beyond int32", `{rolloutStrategy: {rollingUpdateConfiguration: {maxSurge: 99999999999}}}`, `spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge: Invalid value: 99999999999: spec.rolloutStrategy.rollingUpdateConfiguration.maxSurge in body should be less than or equal to 2147483647`},
		{"subgroups", `{leaderWorkerTemplate: {size: 5, subGroupPolicy: {subGroupSize: 3}}}`, `spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize: Invalid value: size or size - 1 must be divisible by subGroupSize`},
		{"product of replicas and size", `{replicas: 100000, leaderWorkerTemplate: {size: 100000}}`, "the product of replicas and worker replicas must not exceed 2147483647"},
		{"costly quantity", `{leaderWorkerTemplate: {workerTemplate: {spec: {containers: [{name: c, resources: {limits: {cpu: "1e-2147483647"}}}]}}}}`, "should match"},
		{"costly quantity of a PVC", `{leaderWorkerTemplate: {volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: "1e2147483647"}}}}]}}`, "should match"},
	}
	set := newSet(namespace, "w")
	must(t, api.Create(t.Context(), set))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			patch, err := yaml.YAMLToJSON([]byte("{spec: " + tt.spec + "}"))
			must(t, err)
			wantRefusal(t, api.Patch(t.Context(), set.DeepCopy(), merge(string(patch))), tt.text)
		})
	}
}

// Without the webhook, the definition stands alone.
func TestZeroValuesOfTypedClients(t *testing.T) {
	namespace := shared(t).namespace()
	tests := []struct {
		name   string
		change func(*lwsv1.LeaderWorkerSetSpec)
		text   string
	}{
		{"start left empty", func(s *lwsv1.LeaderWorkerSetSpec) { s.StartupPolicy = "" }, `spec.startupPolicy: Unsupported value: ""`},
		{"strategy left empty", func(s *lwsv1.LeaderWorkerSetSpec) { s.RolloutStrategy.Type = "" }, `spec.rolloutStrategy.type: Unsupported value: ""`},
		{"budget left empty", func(s *lwsv1.LeaderWorkerSetSpec) {
			s.RolloutStrategy.RollingUpdateConfiguration = &lwsv1.RollingUpdateConfiguration{}
		}, "must not be 0 when `maxSurge` is 0"},
		{"network left empty", func(s *lwsv1.LeaderWorkerSetSpec) { s.NetworkConfig = &lwsv1.NetworkConfig{} }, "spec.networkConfig.subdomainPolicy: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			set := newSet(namespace, "w")
			tt.change(&set.Spec)
			wantRefusal(t, api.Create(t.Context(), set), tt.text)
		})
	}
	must(t, api.Create(t.Context(), newSet(namespace, "w")))
}

func statefulSet(namespace string, change func(*appsv1.StatefulSetSpec)) *appsv1.StatefulSet {
	labels := map[string]string{"app": "w"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Namespace: namespace},
		Spec: appsv1.StatefulSetSpec{
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podWith("", "").Spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*newClaim("", "data")},
		},
	}
	if change != nil {
		change(&set.Spec)
	}
	return set
}

// The webhook refuses these templates early, because the API server refuses their StatefulSets.
func TestStatefulSetsRefuseWhatAdmissionRefuses(t *testing.T) {
	namespace := shared(t).namespace()
	for name, change := range map[string]func(*appsv1.StatefulSetSpec){
		"restartPolicy":         func(s *appsv1.StatefulSetSpec) { s.Template.Spec.RestartPolicy = corev1.RestartPolicyNever },
		"activeDeadlineSeconds": func(s *appsv1.StatefulSetSpec) { s.Template.Spec.ActiveDeadlineSeconds = new(int64(60)) },
		"whenDeleted": func(s *appsv1.StatefulSetSpec) {
			s.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenDeleted: "Recycle"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			wantRefusal(t, api.Create(t.Context(), statefulSet(namespace, change)), name)
		})
	}

	set := statefulSet(namespace, nil)
	must(t, api.Create(t.Context(), set))
	set.Spec.VolumeClaimTemplates[0].Spec.Resources.Requests["storage"] = resource.MustParse("2Gi")
	wantRefusal(t, api.Update(t.Context(), set), "spec.volumeClaimTemplates")
}

func TestPodsRefuseWhatAdmissionRefuses(t *testing.T) {
	namespace := shared(t).namespace()
	pod := podWith(namespace, "w-0")
	admission.SetExclusiveAffinities(pod, "key", "no label", "group")
	wantRefusal(t, api.Create(t.Context(), pod), "topologyKey")

	pod.Spec.Affinity = nil
	pod.Labels = map[string]string{appsv1.ControllerRevisionHashLabelKey: strings.Repeat("a", 64)}
	wantRefusal(t, api.Create(t.Context(), pod), "must be no more than 63")
}
