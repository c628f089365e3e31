# What proves the constrained hardware: footprint, real ARM wheels under emulation, real memory limits.
# Read by the Makefile, whose variables it uses.

.PHONY: footprint test-arm test-arm-device test-arm-story test-lowmem

MOBILENET := .footprint/mobilenetv2.onnx

$(MOBILENET): | workstation
	@echo "setup: MobileNetV2 at 224 with random weights, float32 and int8 (edge_tools.benchmarks.mobilenet)"
	@$(WORKSTATION)/python -m edge_tools.benchmarks.mobilenet .footprint

footprint: device $(MOBILENET)  ## What the SDK adds to an import, a prediction of MobileNetV2 and a process's memory
	@echo "footprint: ratios measured in one run (edge_tools.benchmarks.footprint)"
	@PYTHONSAFEPATH=1 $(DEVICE)/python -m edge_tools.benchmarks.footprint .footprint

# Left out: under emulation a process starts so slowly that every kill comes before the first entry; the memory of the
# emulator itself, which translates as it goes, counts as the program's; and strace would trace the emulator.
ARM_SKIPS := --deselect tests/device/test_datastore_faults.py::test_nothing_acknowledged_is_lost_by_kills \
	--deselect tests/device/test_datastore_long.py::test_neither_file_nor_memory_grows_over_many_learns \
	--deselect tests/device/test_no_network.py::test_no_library_opens_a_socket_below_python

test-arm: test-arm-device test-arm-story  ## The device's tests and story on emulated ARM, with the real aarch64 wheels

test-arm-device: .arm/ready.stamp  ## The first half of test-arm: tests/device on an emulated Cortex-A72 (TESTS=some)
	@echo "test-arm-device: pytest tests/device on an emulated Cortex-A72 (tools/arm)"
	@.arm/python -m pytest --quiet -p no:cacheprovider $(ARM_SKIPS) $(or $(TESTS),tests/device)

test-arm-story: .arm/ready.stamp workstation  ## The second half: datastores made here and opened there, and back
	@echo "test-arm-story: datastores made here and opened there, and back (tools/arm/story.py)"
	@$(WORKSTATION)/python tools/arm/story.py .arm .arm/watch-int8.onnx

.arm/ready.stamp: tools/arm/build_root.py | workstation
	@$(WORKSTATION)/python tools/arm/build_root.py .arm
	@$(WORKSTATION)/edge-sdk export examples/watch/model.pt --model examples.watch.net:ActivityNet --input-shape 6,100 \
		--labels examples/watch/labels.txt --calibration examples/watch/users/1636/learn.npz --quantize int8 \
		-o .arm/watch-int8.onnx >/dev/null
	@touch $@

test-lowmem: workstation $(MOBILENET)  ## The applications of a small board inside real memory limits
	@echo "test-lowmem: peak memory in a cgroup with a limit (edge_tools.benchmarks.low_memory)"
	@$(WORKSTATION)/python -m edge_tools.benchmarks.low_memory .footprint
