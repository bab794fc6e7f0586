package redact

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"lockstep.dev/lockstep/api/config/v1alpha1"
	dsv1 "lockstep.dev/lockstep/api/disaggregatedset/v1"
	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/disaggregated"
	"lockstep.dev/lockstep/internal/lws/revision"
	"lockstep.dev/lockstep/test/expect"
)

// stays are the fields that the docs promise to keep: names, labels, images, and what a node is. A secret there is a
// name that its user chose.
var stays = strings.Fields(`apiVersion kind name generateName namespace uid resourceVersion finalizers labels matchLabels nodeSelector
	selector matchLabelKeys mismatchLabelKeys topologyKey topologyKeys PlacementPolicy.topology key image imageID nodeName nominatedNodeName PodSpec.hostname subdomain
	serviceName serviceAccountName serviceAccount schedulerName priorityClassName runtimeClassName storageClassName volumeName claimName
	secretName containerName driver Toleration.value Taint.value values leader currentRevision updateRevision
	StartedGroup.pods GroupRestarts.revision PodFailure.pod PodFailure.container PodFailure.node ContainerFailure.pod kernelVersion osImage
	containerRuntimeVersion kubeletVersion operatingSystem architecture exemptNamespaces WorkloadKind.podTemplates
	WorkloadKind.claimTemplates WorkloadKind.claimName WorkloadKind.replicas WorkloadKind.suspend WorkloadKind.finished webhookServiceName
	webhookSecretName resourceName resourceNamespace`)

// canary plants secrets.
type canary struct {
	secrets []string
	names   int
	depth   map[reflect.Type]int
}

func (c *canary) secret() string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	text := "q" // no number, and no word of the list begins with these
	for range 15 {
		text += string(letters[rand.IntN(len(letters))])
	}
	c.secrets = append(c.secrets, text)
	return text
}

func (c *canary) name() string { c.names++; return fmt.Sprintf("name-%d", c.names) }

// plant fills every string of a value, whatever its type: names into fields that stay, and secrets elsewhere.
func (c *canary) plant(v reflect.Value, of, field string) {
	kept := slices.Contains(stays, field) || slices.Contains(stays, of+"."+field)
	kept = kept && of != "PodDNSConfigOption" // options are a map with keys of users elsewhere
	text := func() string {
		switch {
		case kept:
			return c.name()
		case len(c.secrets)%3 == 0:
			return "failed: " + c.secret() + ", because of " + c.secret() + "/" + c.secret()
		}
		return c.secret()
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text())
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		c.plant(v.Elem(), of, field)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(c.secret()))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		c.plant(v.Index(0), of, field)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		keys := []string{c.secret(), "name", "image", "status"} // a key of a user may be a field elsewhere
		if kept || field == "annotations" || v.Type().Key().PkgPath() != "" {
			keys[0] = c.name()
		}
		for _, key := range keys {
			value := reflect.New(v.Type().Elem()).Elem()
			c.plant(value, of, field)
			v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
		}
	case reflect.Struct:
		c.plantStruct(v)
	}
}

func (c *canary) plantStruct(v reflect.Value) {
	switch of := v.Addr().Interface().(type) {
	case *metav1.Time:
		of.Time = time.Unix(1_700_000_000, 0)
		return
	case *metav1.MicroTime:
		of.Time = time.Unix(1_700_000_000, 123_000)
		return
	case *resource.Quantity:
		*of = resource.MustParse("1073741825")
		return
	case *intstr.IntOrString:
		of.Type, of.StrVal = intstr.String, c.secret()
		return
	case *metav1.FieldsV1:
		of.SetRawBytes([]byte(`{"f:` + c.secret() + `":{}}`))
		return
	case *runtime.RawExtension:
		of.Raw = []byte(`{"any":"` + c.secret() + `"}`)
		return
	}
	if c.depth[v.Type()] > 1 {
		return
	}
	c.depth[v.Type()]++
	defer func() { c.depth[v.Type()]-- }()
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			c.plant(v.Field(i), v.Type().Name(), jsonName(f))
		}
	}
}

// kinds are the kinds with Go types in a bundle.
func kinds() []client.Object {
	return []client.Object{
		&dsv1.DisaggregatedSet{}, &dsv1.DisaggregatedSetRoleScaler{}, &lwsv1.LeaderWorkerSet{}, &corev1.Pod{}, &appsv1.StatefulSet{}, &appsv1.ControllerRevision{}, &corev1.Service{},
		&corev1.PersistentVolumeClaim{}, &corev1.PersistentVolume{}, &corev1.Node{}, &corev1.Event{}, &corev1.Namespace{},
		&corev1.ConfigMap{}, &appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.DaemonSet{}, &batchv1.Job{}, &batchv1.CronJob{},
	}
}

// objects are objects of every kind in a bundle, with secrets wherever their types allow.
func (c *canary) objects(t *testing.T) (all []client.Object) {
	for _, object := range kinds() {
		c.plant(reflect.ValueOf(object).Elem(), "", "")
		object.GetAnnotations()[corev1.LastAppliedConfigAnnotation] = `{"spec":{"env":"` + c.secret() + `"}}`
		object.GetAnnotations()["lockstep.dev/restart"] = `{"message":"` + c.secret() + `"}`
		object.GetAnnotations()["leaderworkerset.sigs.k8s.io/other"] = c.secret()
		switch o := object.(type) {
		case *corev1.ConfigMap:
			configuration := &v1alpha1.Configuration{}
			c.plant(reflect.ValueOf(configuration).Elem(), "", "")
			text := expect.Value(yaml.Marshal(configuration))(t)
			o.Data[v1alpha1.InstalledKey] = "# " + c.secret() + "\n" + string(text) + "newer: " + c.secret() + "\n"
		case *dsv1.DisaggregatedSet:
			all = append(all, disaggregated.Record(o, "4852664f", 1))
		case *lwsv1.LeaderWorkerSet:
			data := expect.Value(revision.Data(o))(t)
			all = append(all, &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "of-set"}, Data: runtime.RawExtension{Raw: data}})
		}
		all = append(all, object)
	}
	untyped := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
		"metadata": map[string]any{"name": "jobs", "annotations": map[string]any{"note": c.secret()}},
		"spec": map[string]any{
			"replicatedJobs": []any{map[string]any{"name": "a", "env": []any{map[string]any{"name": "b", "value": c.secret()}}}},
			"data":           map[string]any{"name": c.secret(), "image": c.secret(), c.secret(): c.secret()},
			"template":       map[string]any{"metadata": map[string]any{"annotations": map[string]any{"name": c.secret()}}},
			"queue":          c.secret(), c.secret(): c.secret(), "requests": map[string]any{"cpu": c.secret()},
		},
		"status": map[string]any{"message": c.secret()},
	}}
	return append(all, untyped)
}

func TestNoSecretStays(t *testing.T) {
	c := &canary{depth: map[reflect.Type]int{}}
	r, objects := New(), c.objects(t)
	before := make([]string, len(objects))
	for i, object := range objects {
		before[i] = encoded(t, object)
	}
	log := time.Now().Format(time.RFC3339) + ` ERROR cannot write {"name":"name-1","error":"` + c.secret() + `: \"` + c.secret() + `\""}`
	r.Learn(objects)
	var out strings.Builder
	for i, object := range objects {
		redacted := encoded(t, r.Object(object))
		out.WriteString(redacted)
		decodes(t, object, redacted)
		expect.Equalf(t, before[i], encoded(t, object), "%T was changed itself", object)
	}
	out.WriteString(r.Text(log))
	forms := map[string]bool{}
	expect.Must(t, len(c.secrets) >= 200, "only %d secrets were planted", len(c.secrets))
	for _, secret := range c.secrets {
		forms[secret], forms[base64.StdEncoding.EncodeToString([]byte(secret))] = true, true
	}
	for text := out.String(); len(text) > 24; text = text[1:] {
		expect.Must(t, !forms[text[:16]] && !forms[text[:24]], "the bundle has a secret: %.200s", text)
	}
	planted, left := wordsOf(strings.Join(before, "")), wordsOf(out.String())
	for n := range c.names {
		name := fmt.Sprintf("name-%d", n+1)
		expect.That(t, !planted[name] || left[name], "%s is lost", name)
	}
	t.Logf("%d secrets, %d names", len(c.secrets), c.names)
}

// decodes checks that an API server can read a redacted object: times, quantities and names of fields stay.
func decodes(t *testing.T, object client.Object, redacted string) {
	t.Helper()
	again := reflect.New(reflect.TypeOf(object).Elem()).Interface().(client.Object)
	decoder := json.NewDecoder(strings.NewReader(redacted))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(again)
	expect.That(t, err == nil, "%T does not decode: %v", object, err)
	for _, kept := range []string{`"2023-11-14T22:13:20Z"`, `"1073741825"`} {
		before := strings.Count(encoded(t, object), kept)
		expect.Equalf(t, before, strings.Count(redacted, kept), "%T: values %s", object, kept)
	}
}

func wordsOf(text string) map[string]bool {
	words := map[string]bool{}
	for _, word := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(`"{}[]:, `, r) }) {
		words[word] = true
	}
	return words
}

func encoded(t *testing.T, object client.Object) string {
	t.Helper()
	return string(expect.Value(json.Marshal(object))(t))
}
