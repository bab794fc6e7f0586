package revision_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/identity"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/test/expect"
	"lockstep.dev/lockstep/test/fakeapi"
)

// sample is the set that the vectors of the API are variations of.
func sample(edits ...func(*lwsv1.LeaderWorkerSet)) *lwsv1.LeaderWorkerSet {
	const image = "docker.io/nginxinc/nginx-unprivileged:1.27"
	set := fakeapi.Set("test-sample", 2, 2, fakeapi.Image(image), fakeapi.Leader(image), fakeapi.Policy(lwsv1.RecreateGroupOnPodRestart))
	set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.Containers[0].Ports = []corev1.ContainerPort{
		{ContainerPort: 8080, Protocol: corev1.ProtocolTCP},
	}
	return fakeapi.Edited(set, edits...)
}

func data(t testing.TB, set *lwsv1.LeaderWorkerSet) []byte {
	t.Helper()
	return expect.Value(revision.Data(set))(t)
}

const sampleData = `{"spec":{"leaderWorkerTemplate":{"$patch":"replace","leaderTemplate":{"metadata":{},"spec":{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","name":"leader","resources":{}}]}},"restartPolicy":"RecreateGroupOnPodRestart","size":2,"workerTemplate":{"metadata":{},"spec":{"containers":[{"image":"docker.io/nginxinc/nginx-unprivileged:1.27","name":"worker","ports":[{"containerPort":8080,"protocol":"TCP"}],"resources":{}}]}}},"networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}`

func TestRevisionDataIsByteForByteThatOfTheAPI(t *testing.T) {
	encoded := data(t, sample(func(set *lwsv1.LeaderWorkerSet) { // no revision has these
		set.Spec.GroupIdentity, set.Spec.GroupReplacementPolicy = lwsv1.HashGroupIdentity, lwsv1.ImmediateGroupReplacement
	}))
	expect.Equal(t, sampleData, string(encoded))
	expect.Equal(t, "7bdcf6cbd6", revision.Key(encoded))
}

func TestRevisionDataArtefacts(t *testing.T) {
	set := sample(func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.NetworkConfig = &lwsv1.NetworkConfig{}
		set.Spec.LeaderWorkerTemplate.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}}
		set.Spec.LeaderWorkerTemplate.WorkerTemplate.Spec.ActiveDeadlineSeconds = fakeapi.Ptr[int64](1 << 53)
	})
	got := string(data(t, set))
	for _, want := range []string{
		`"networkConfig":{"$patch":"replace","subdomainPolicy":null}`,
		`"volumeClaimTemplates":[{"metadata":{"name":"data"},"spec":{"resources":{}},"status":{}}]`,
		`"activeDeadlineSeconds":9007199254740992`,
	} {
		expect.Says(t, got, want)
	}
}

func TestRestoreBringsBackTheTemplateAndKeepsTheRest(t *testing.T) {
	old := sample(fakeapi.UniquePerReplica)
	live := sample(fakeapi.Image("image:2"), fakeapi.LeaderReady, func(set *lwsv1.LeaderWorkerSet) {
		set.Spec.Replicas = fakeapi.Ptr[int32](7)
		set.Spec.LeaderWorkerTemplate.LeaderTemplate = nil
	})
	before := live.DeepCopy()
	restored := expect.Value(revision.Restore(live, data(t, old)))(t)
	want := live.DeepCopy()
	want.Spec.LeaderWorkerTemplate = old.Spec.LeaderWorkerTemplate
	want.Spec.NetworkConfig = old.Spec.NetworkConfig
	expect.Equalf(t, want, restored, "restored")
	expect.Equalf(t, before, live, "the live set was changed")
	again := data(t, restored)
	expect.That(t, bytes.Equal(again, data(t, old)), "restored encodes as %s", again)
}

func TestRestoreRefusesWhatIsNoRevision(t *testing.T) {
	for _, stored := range []string{"", "{", "null", "[]", "{}", `{"spec":{}}`, `{"spec":{"leaderWorkerTemplate":null}}`, `{"spec":{"leaderWorkerTemplate":{"size":"x"}}}`} {
		restored, err := revision.Restore(sample(), []byte(stored))
		expect.That(t, err != nil, "%q was restored as %+v", stored, restored)
	}
}

// withStorage is a revision whose claim asks for the given JSON.
func withStorage(storage string) []byte {
	return []byte(`{"spec":{"leaderWorkerTemplate":{"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":` + storage + `}}}}]}}}`)
}

func TestGenuine(t *testing.T) {
	encoded := data(t, sample())
	stored := func(name, set, key string, data []byte) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{lwsv1.SetNameLabelKey: set, lwsv1.RevisionKey: key}},
			Data:       runtime.RawExtension{Raw: data},
		}
	}
	owned := func(r *appsv1.ControllerRevision) *appsv1.ControllerRevision {
		r.OwnerReferences = []metav1.OwnerReference{{UID: "set", Controller: ptr.To(true)}}
		return r
	}
	for _, tt := range []struct {
		name     string
		revision *appsv1.ControllerRevision
		set      string
		genuine  bool
	}{
		{"its key is its hash", stored("any", "test-sample", "7bdcf6cbd6", encoded), "test-sample", true},
		{"created again under an older key", owned(stored("test-sample-7bdcf6cbd6-4", "test-sample", "older", encoded)), "test-sample", true},
		{"the same without a controller", stored("test-sample-7bdcf6cbd6-4", "test-sample", "older", encoded), "test-sample", false},
		{"other data under the name", owned(stored("test-sample-7bdcf6cbd6-1", "test-sample", "older", []byte(`{}`))), "test-sample", false},
		{"a longer name", owned(stored("test-sample-7bdcf6cbd6x-1", "test-sample", "older", encoded)), "test-sample", false},
		{"another set's", stored("any", "other", "7bdcf6cbd6", encoded), "test-sample", false},
		{"no key", stored("test-sample-7bdcf6cbd6-4", "test-sample", "", encoded), "test-sample", false},
		{"other data under the key", stored("test-sample-x-1", "test-sample", "7bdcf6cbd6", []byte(`{}`)), "test-sample", false},
	} {
		expect.Equalf(t, tt.genuine, revision.Genuine(tt.revision, tt.set), "%s", tt.name)
	}
}

// A user who may create revisions must not choose the template of a set.
func TestARevisionWithItsOwnKeyPrecedesOthers(t *testing.T) {
	own, other := &appsv1.ControllerRevision{Revision: 1}, &appsv1.ControllerRevision{Revision: 99}
	own.Data.Raw, other.Data.Raw = data(t, sample()), []byte(`{}`)
	for _, r := range []*appsv1.ControllerRevision{own, other} {
		r.Labels = map[string]string{lwsv1.RevisionKey: revision.Key(own.Data.Raw)}
	}
	for _, all := range [][]*appsv1.ControllerRevision{{own, other}, {other, own}} {
		expect.Equal(t, own, revision.WithKey(all, revision.Key(own.Data.Raw)))
	}
}

func FuzzRevision(f *testing.F) {
	f.Add([]byte(sampleData))
	f.Add([]byte(`{"spec":{"leaderWorkerTemplate":{"size":3},"networkConfig":{}}}`))
	f.Add([]byte(`{"spec":{"leaderWorkerTemplate":{"workerTemplate":{"spec":{"containers":[{}]}}}}}`))
	f.Add([]byte(`{"spec":{"leaderWorkerTemplate":{"size":1e99}}}`))
	f.Add([]byte(`{"spec":{"leaderWorkerTemplate":{"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"1e9999999"}}}}]}}}`))
	for _, storage := range []string{`"1e-2147483647"`, `1e2147483647`, `"0e-2147483648"`, `"\u0031e-2147483647"`, `"1000e999"`, `"` + strings.Repeat("9", 250) + `e99"`} {
		f.Add(withStorage(storage))
		f.Add(bytes.ReplaceAll(withStorage(storage), []byte("requests"), []byte("Requests")))
	}
	f.Add([]byte(strings.Repeat("[", 20_000)))
	f.Add([]byte{0xff, 0x00})
	f.Fuzz(func(t *testing.T, stored []byte) {
		set := sample()
		before := set.DeepCopy()
		restored, err := revision.Restore(set, stored)
		expect.Equalf(t, before, set, "the set was changed")
		r := &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "r", Labels: map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: revision.Key(stored)}},
			Data:       runtime.RawExtension{Raw: stored},
		}
		expect.Must(t, revision.Genuine(r, set.Name), "data does not hash to its own key")
		key := revision.Key(stored)
		expect.Must(t, len(key) >= 1 && len(key) <= 10, "key %q is out of bounds", key)
		if err != nil {
			return
		}
		checkReencoded(t, restored, len(stored))
	})
}

// checkReencoded checks that what was restored says the same for ever, in a size
// that its source bounds.
func checkReencoded(t *testing.T, restored *lwsv1.LeaderWorkerSet, size int) {
	once, err := revision.Data(restored)
	if err != nil {
		return
	}
	expect.Must(t, len(once) <= 64*size+1024, "%d bytes became %d", size, len(once))
	again, err := revision.Restore(restored, once)
	expect.OKf(t, err, "our own data cannot be read")
	twice := data(t, again)
	expect.Must(t, bytes.Equal(once, twice), "not the same twice:\n%s\n%s", once, twice)
}

// A revision is the same when no client wrote the difference.
func TestSameMeaning(t *testing.T) {
	const base = `{"spec":{"leaderWorkerTemplate":{"$patch":"replace","restartPolicy":"None","size":4,"subGroupPolicy":{"subGroupPolicyType":"LeaderWorker","subGroupSize":2},"workerTemplate":{"metadata":{},"spec":{"containers":[{"name":"c","ports":[{"containerPort":80,"protocol":"TCP"}],"livenessProbe":{"grpc":{"port":1,"service":""}},"resources":{}}]}}},"networkConfig":{"$patch":"replace","subdomainPolicy":"Shared"}}}`
	for _, tt := range []struct {
		name, old, new string
		same           bool
	}{
		{"nothing", "", "", true},
		{"a policy that an older definition did not know", `"subGroupPolicyType":"LeaderWorker",`, ``, true},
		{"another policy", `"LeaderWorker"`, `"LeaderExcluded"`, false},
		{"a protocol filled in", `,"protocol":"TCP"`, ``, true},
		{"a service filled in", `,"service":""`, ``, true},
		{"the old word for no policy", `"restartPolicy":"None"`, `"restartPolicy":"Default"`, true},
		{"another size", `"size":4,`, ``, false},
		{"no network", `,"subdomainPolicy":"Shared"`, ``, true},
		{"a network that says nothing", `"subdomainPolicy":"Shared"`, `"subdomainPolicy":null`, true},
		{"another network", `"Shared"`, `"UniquePerReplica"`, false},
		{"what the API server would fill in, but a client wrote", `"resources":{}`, `"resources":{},"terminationMessagePath":"/dev/termination-log"`, false},
		{"zero is not nothing", `"containers"`, `"terminationGracePeriodSeconds":0,"containers"`, false},
		{"a label called as a field is", `"metadata":{}`, `"metadata":{"labels":{"user":"admin"}}`, false},
		{"what is no document", base, `{`, false},
	} {
		changed := []byte(strings.Replace(base, tt.old, tt.new, 1))
		expect.Equalf(t, tt.same, revision.SameMeaning([]byte(base), changed), "%s: %s", tt.name, changed)
		expect.Equalf(t, tt.same, revision.SameMeaning(changed, []byte(base)), "%s: the other way round", tt.name)
	}
}

// A user may call a label as a field is called somewhere, and give it what is
// filled in there; and what is filled into one volume is written into another.
func TestWhatStandsElsewhereIsNeverFilledIn(t *testing.T) {
	tests := []struct{ in, name, value string }{
		{"labels", "user", `"admin"`},
		{"annotations", "service", `""`},
		{"annotations", "restartPolicy", `"Default"`},
		{"nodeSelector", "pool", `"rbd"`},
		{"matchLabels", "protocol", `"TCP"`},
		{"volumeAttributes", "fsType", `"ext4"`},
		{"csi", "fsType", `"xfs"`},
		{"azureDisk", "fsType", `"xfs"`},
		{"seLinuxOptions", "user", `"admin"`},
		{"volumeMounts", "readOnly", "false"},
	}
	for _, tt := range tests {
		const stored = `{"spec":{"leaderWorkerTemplate":{"workerTemplate":{%q:{"kept":"x"%s}}}}}`
		without, with := fmt.Sprintf(stored, tt.in, ""), fmt.Sprintf(stored, tt.in, fmt.Sprintf(",%q:%s", tt.name, tt.value))
		expect.That(t, !revision.SameMeaning([]byte(without), []byte(with)), "%s means the same as %s", with, without)
	}
}

// A group has the restart policy of its revision. One whose revision is lost, or cannot be read, has that of the set.
func TestPolicyAtReadsTheRevision(t *testing.T) {
	set := sample(fakeapi.Policy(lwsv1.NoneRestartPolicy))
	for name, tt := range map[string]struct {
		data, key string
		want      lwsv1.RestartPolicyType
	}{
		"its own":     {sampleData, "7bdcf6cbd6", lwsv1.RecreateGroupOnPodRestart},
		"lost":        {sampleData, "other", lwsv1.NoneRestartPolicy},
		"no template": {`{"spec":{}}`, revision.Key([]byte(`{"spec":{}}`)), lwsv1.NoneRestartPolicy},
		"no revision": {`{"spec":1}`, revision.Key([]byte(`{"spec":1}`)), lwsv1.NoneRestartPolicy},
	} {
		r := &appsv1.ControllerRevision{Data: runtime.RawExtension{Raw: []byte(tt.data)}}
		key := revision.Key(r.Data.Raw)
		r.Name, r.Labels = revision.Name(set.Name, key, 1), map[string]string{lwsv1.SetNameLabelKey: set.Name, lwsv1.RevisionKey: key}
		revisions := identity.Claim[*appsv1.ControllerRevision]{Owned: []*appsv1.ControllerRevision{r}}
		expect.Equalf(t, tt.want, revision.PolicyAt(set, revisions, tt.key), "%s", name)
	}
}
