package quantity_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	lwsv1 "lockstep.dev/lockstep/api/leaderworkerset/v1"
	"lockstep.dev/lockstep/internal/quantity"
	"lockstep.dev/lockstep/test/expect"
)

var (
	inPods = quantity.In[corev1.Pod]()
	inSets = quantity.In[lwsv1.LeaderWorkerSet]()
)

// Each of these takes minutes to decode, or makes a comparison panic.
var costly = []string{
	"1e-2147483647", "1E-2147483647", "-1e-2147483647", ".1e-2147483648", " 1e-9999999 ", "1e-100",
	"0e-2147483648", "000e-99999999", "1e2147483647", "1e+9999", "1e4294967297", "1e99999999999999999999",
	"1e0001", "1000e999", strings.Repeat("9", 257), "0." + strings.Repeat("0", 1<<16) + "1", strings.Repeat("9", 1<<16) + "Ei",
}

var written = []string{
	"0", "1", "+1", "-1", "1.5Gi", "+1.5Gi", ".5", "1.", "500m", "100n", "5u", "2k", "2M", "2G", "2T", "2P", "2E",
	"1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei", "1e3", "1E3", "1e+03", "1e-3", "1.5e9", "1e18", "1e99", "1e-99",
	"9223372036854775807", "99999999999999999999Ei", strings.Repeat("9", 61) + "e99",
}

func TestCostlyQuantitiesAreRefused(t *testing.T) {
	for _, text := range costly {
		expect.That(t, !quantity.Harmless(text), "%.80q is harmless", text)
	}
	for _, text := range append(written, "", "e", "1e", "cpu", "1e1.5", "one") {
		expect.That(t, quantity.Harmless(text), "%q is refused", text)
	}
}

// The next decoder writes a quantity in another form, which must be accepted as well: the
// operator could not read the revision of a set otherwise.
func TestWrittenFormOfHarmlessQuantityIsHarmless(t *testing.T) {
	texts := rapid.StringMatching(`[+-]?[0-9]{0,70}(\.[0-9]{0,70})?([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,4})?`)
	rapid.Check(t, func(t *rapid.T) {
		text := texts.Draw(t, "text")
		if !quantity.Harmless(text) {
			return
		}
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return
		}
		one := resource.MustParse("1500m")
		expect.Must(t, q.Cmp(one) == -one.Cmp(q), "%q compares one way only", text)
		expect.Must(t, quantity.Harmless(q.String()), "%q is harmless and its form %q is not", text, &q)
	})
}

func TestCheckFindsQuantitiesInAllPlaces(t *testing.T) {
	const bomb = `"1e-2147483647"`
	container := `{"containers":[{},{"resources":{"limits":{"cpu":"1","nvidia.com/gpu":` + bomb + `}}}]}`
	claim := `{"spec":{"resources":{"requests":{"storage":` + bomb + `}}}}`
	for path, set := range map[string]string{
		"spec.leaderWorkerTemplate.workerTemplate.spec.containers[1].resources.limits[nvidia.com/gpu]": `{"workerTemplate":{"spec":` + container + `}}`,
		"spec.leaderWorkerTemplate.leaderTemplate.spec.containers[1].resources.limits[nvidia.com/gpu]": `{"leaderTemplate":{"spec":` + container + `}}`,
		"spec.leaderWorkerTemplate.volumeClaimTemplates[0].spec.resources.requests[storage]":           `{"volumeClaimTemplates":[` + claim + `]}`,
		"spec.leaderWorkerTemplate.volumeClaimTemplates[0].status.capacity[storage]":                   `{"volumeClaimTemplates":[{"status":{"capacity":{"storage":` + bomb + `}}}]}`,
		"spec.leaderWorkerTemplate.workerTemplate.spec.overhead[cpu]":                                  `{"workerTemplate":{"spec":{"overhead":{"cpu":` + bomb + `}}}}`,
		"spec.leaderWorkerTemplate.workerTemplate.spec.volumes[0].emptyDir.sizeLimit":                  `{"workerTemplate":{"spec":{"volumes":[{"emptyDir":{"sizeLimit":` + bomb + `}}]}}}`,
		"spec.leaderWorkerTemplate.workerTemplate.spec.initContainers[0].env[0].valueFrom.resourceFieldRef.divisor": `{"workerTemplate":{"spec":{"initContainers":[
			{"env":[{"valueFrom":{"resourceFieldRef":{"divisor":` + bomb + `}}}]}]}}}`,
	} {
		err := inSets.Check([]byte(`{"kind":"LeaderWorkerSet","spec":{"replicas":1,"leaderWorkerTemplate":` + set + `}}`))
		expect.That(t, err != nil && strings.HasPrefix(err.Error(), path+": Invalid value: "+bomb+": "),
			"%s: got %v", path, err)
	}
}

// limited is a pod with the given JSON as a limit.
func limited(limit string) []byte {
	return fmt.Appendf(nil, `{"spec":{"containers":[{"resources":{"limits":%s}}]}}`, limit)
}

func TestCheckCannotBeBypassed(t *testing.T) {
	for name, limit := range map[string]string{
		"a number":                  `{"cpu":1e-2147483647}`,
		"an escaped digit":          `{"cpu":"\u0031e-2147483647"}`,
		"a name given twice":        `{"cpu":"1e-2147483647","cpu":"1"}`,
		"an object given twice":     `{"cpu":"1e-2147483647"},"limits":{"cpu":"1"}`,
		"after skipped values":      `{"cpu":null,"a":"","memory":"1e-2147483647"}`,
		"in an escaped name":        `{"\u0063pu":"1e-2147483647"}`,
		"beside a wrong type":       `{"cpu":{"a":["1"]},"memory":"1e-2147483647"}`,
		"in a list where a map was": `["1e-2147483647"]`,
	} {
		expect.ErrorSays(t, inPods.Check(limited(limit)), "exponent", name)
	}
}

func TestOtherFieldsAreNotChecked(t *testing.T) {
	const likeOne = `"1e1234567"`
	pod := `{"metadata":{"name":` + likeOne + `,"labels":{"cpu":` + likeOne + `,"limits":` + likeOne + `}},"unknown":{"limits":{"cpu":` + likeOne + `}},
		"spec":{"containers":[{"image":` + likeOne + `,"env":[{"name":"A","value":` + likeOne + `}],"livenessProbe":{"httpGet":{"port":` + likeOne + `}}}]}}`
	expect.OK(t, inPods.Check([]byte(pod)))
	for _, text := range written {
		expect.OK(t, inPods.Check(limited(`{"cpu":"`+text+`"}`)))
	}
}

func TestBrokenJSONIsAnError(t *testing.T) {
	for _, text := range []string{"", "{", `{"spec":`, `{"spec":{"containers":[}`, `{1:2}`, strings.Repeat(`[`, 1<<20), `{"unknown":` + strings.Repeat(`[`, 1<<20)} {
		expect.That(t, inPods.Check([]byte(text)) != nil, "%.40q: no error", text)
	}
}

func TestErrorsAreShort(t *testing.T) {
	long := strings.Repeat("9", 1<<20)
	err := inPods.Check(limited(`{"` + long + `":"` + long + `"}`))
	expect.That(t, err != nil && len(err.Error()) <= 512, "got an error of %d bytes", len(fmt.Sprint(err)))
}

func TestDecimalsAreWrittenAsKubernetesWritesThem(t *testing.T) {
	for number, text := range map[string]string{
		"0.5": "500m", "-0.5": "-500m", "1.0": "1", "1e3": "1e3", "1e+21": "1e+21", "1e-07": "100e-9", "0.0000000001": "1n", "1.5e9": "1500e6",
		"1": "", `"0.5"`: "", `"1e3"`: "", "null": "", "true": "", "{}": "", "[]": "",
	} {
		found, err := inPods.Decimals(limited(`{"a~b/c":` + number + `}`))
		var want []quantity.Decimal
		if text != "" {
			want = []quantity.Decimal{{Pointer: "/spec/containers/0/resources/limits/a~0b~1c", Text: text}}
		}
		diff := cmp.Diff(want, found, cmpopts.EquateEmpty())
		expect.That(t, err == nil && diff == "", "%s: %v (-want +got):\n%s", number, err, diff)
	}
	found, err := inPods.Decimals([]byte(`{"spec":{"activeDeadlineSeconds":0.5,"containers":[{"livenessProbe":{"httpGet":{"port":0.5}}}]}}`))
	expect.That(t, err == nil && len(found) == 0, "other numbers are taken for quantities: %v, %v", found, err)
}

func TestMistypedQuantityIsNamed(t *testing.T) {
	for value, want := range map[string]bool{
		`"half"`: true, `""`: true, "true": true, `{"a":"1"}`: true, `["1"]`: true, `"0,5"`: true, `"1.5 Gi"`: true,
		"0.5": false, "1": false, `" 1 "`: false, "null": false, `"500m"`: false,
	} {
		mistyped := inPods.Mistyped(limited(fmt.Sprintf(`{"memory":"1Gi","cpu":%s}`, value)))
		expect.That(t, (mistyped != nil) == want && (!want || mistyped.Field == "spec.containers[0].resources.limits[cpu]"),
			"%s: %v", value, mistyped)
	}
	mistyped := inPods.Mistyped(limited(`{"cpu":"` + strings.Repeat("x", 1<<16) + `"}`))
	expect.That(t, len(mistyped.Error()) <= 512, "the error has %d bytes", len(mistyped.Error()))
}
