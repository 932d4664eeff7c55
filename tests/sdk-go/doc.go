// Package sdkgo proves that the deployed Go SDK of Azure IoT Operations, as its
// module proxy has it, works against this state store: its client of the store
// and its leased locks, over the MQTT library that it brings (paho.golang).
//
// Every test starts processes of its own and uses nothing but the SDK's public
// calls. Most run twice: against a store in a broker of its own, and against
// one with mosquitto. This SDK never subscribes to its notifications but
// expects its broker to deliver them; mosquitto does not, so whatever needs a
// notification runs in the first form only.
//
// A checker (porcupine) decides whether the responses to eight clients are
// linearizable: without faults, behind a proxy that injects them, and with mosquitto
// while the store is killed. It must also find the faults of broken stores.
//
// To run it, from this directory:
//
//	cargo build -p statestore -p statestore-chaos
//	export STATESTORE_BIN=target/debug/statestore
//	STATESTORE_CHAOS_BIN=target/debug/statestore-chaos go test ./... -count=1
//
// With STATESTORE_TEST_DEPTH=long, the runs against a sound store end after eight times as
// many responses, or after a minute.
package sdkgo
