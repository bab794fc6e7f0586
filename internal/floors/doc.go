// Package floors holds the test that keeps imports going downward. It knows on
// which floor every package stands and what each floor may know of the world
// outside; nothing imports it.
package floors
