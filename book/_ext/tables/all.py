"""The tables, and what tests ask of them."""
# ruff: noqa: F401 (imported for whoever says `tables.name`)

from tables.accelerator import (
    ACCELERATOR_NAMES,
    AcceleratorName,
    accelerator_names,
)
from tables.amp import POLICIES, autocast_policies, policy_operators
from tables.autoload import IMPORTS, Import, imports
from tables.build import (
    EXTENSION,
    INSTALL,
    extension,
    install,
    needs,
    objects,
    shared_objects,
)
from tables.checked import (
    checked_claims,
    checked_excuses,
    checked_pages,
)
from tables.checklist import POINTS, Point, checklist
from tables.common import ROOT, table
from tables.device import (
    DEVICE_PURPOSES,
    device_functions,
    device_layers,
    device_purposes,
)
from tables.dispatcher import (
    COMPOSITES,
    PASSING_KEYS,
    PATH_OPERATORS,
    REMOVED_TOOLS,
    TOOLS,
    Tool,
    aten_operators,
    chosen,
    dispatch_paths,
    dispatch_tools,
    entered_source,
    exempt,
    fallthroughs,
    implementation_order,
    key_drawing,
    operator_groups,
    operator_set,
    order_of_work,
    registered,
)
from tables.emulator import (
    DEVICE_TESTS,
    DeviceCall,
    device_api,
    device_calls,
    device_error_names,
    device_library,
    device_twins,
)
from tables.environment import VARIABLES, Variable, environment
from tables.errors import (
    DEVICE_ERRORS,
    ERROR_TIMES,
    DeviceError,
    ErrorTime,
    device_errors,
    error_times,
)
from tables.fallback import (
    FALLBACK_ARGUMENTS,
    FALLBACK_REFUSALS,
    Argument,
    Refusal,
    fallback_arguments,
    fallback_refusals,
)
from tables.frontend import (
    LOOKUPS,
    Lookup,
    find_lookups,
    further_lookups,
    generated_methods,
    lookups,
)
from tables.generator import (
    GENERATOR_METHODS,
    GeneratorMethod,
    generator_methods,
)
from tables.guard import (
    GUARD_METHODS,
    GuardMethod,
    guard_methods,
)
from tables.headers import (
    as_prose,
    cpp_address,
    cpp_allocator,
    cpp_device,
    cpp_event,
    cpp_generator,
    cpp_headers,
    cpp_host_allocator,
    cpp_launch,
    cpp_openreg,
    cpp_stream,
    cpp_wait,
    directive,
    entries,
    installed_name,
    public_headers,
    reference,
)
from tables.hooks import (
    HOOKS_HIGH,
    HOOKS_LOW,
    HOOKS_OWN,
    Hook,
    hook_table,
    hooks_high,
    hooks_low,
    hooks_own,
)
from tables.index import (
    REFERENCE,
    SUBSYSTEMS,
    Subsystem,
    our_files,
    reference_map,
    runs,
    state,
    subsystems,
)
from tables.interfaces import (
    MACROS,
    SAID,
    interface,
    interface_allocator,
    interface_generator,
    interface_guard,
    interface_hooks,
    interface_host_allocator,
    interface_host_cache,
    interface_macros,
    macro,
    macros_used,
)
from tables.memory import (
    ALLOCATOR_METHODS,
    CACHE_METHODS,
    DEVICE_STATS,
    HOST_METHODS,
    OPTIONS,
    AllocatorMethod,
    allocator_methods,
    allocator_options,
    device_stats,
    host_allocator_methods,
)
from tables.messages import (
    GAP,
    TOLD,
    Found,
    Told,
    found,
    in_cpp,
    in_python,
    messages_backend,
    messages_device,
    messages_missing,
    messages_python,
    messages_shown,
    on_pages,
    told,
)
from tables.operator_table import (
    LETTERS,
    entries_linear,
    entries_nn,
    entries_other,
    entries_special,
    known_differences,
    known_lines,
    look,
    operator_tiers,
    show,
    tier,
)
from tables.operators import (
    MINIMAL_LISTINGS,
    minimal_rows,
    minimal_set,
)
from tables.operators_inside import (
    ATEN,
    TIERS,
    lines_of,
    tier_operators,
    tiers,
)
from tables.operators_special import (
    optimizer_forms,
    special_kinds,
    wider_dtypes,
)
from tables.performance import (
    RECORD,
    performance_backward,
    performance_rest,
    performance_rows,
    performance_source,
    performance_threads,
    recorded,
)
from tables.pool import POOL_CALLS, pool_calls, pool_drawing
from tables.port import (
    FIXED,
    NAMES,
    Name,
    names_to_change,
    names_to_keep,
    tree,
    users,
)
from tables.python_backend import PYTHON_LIMITS, Limit, python_limits
from tables.start import activate, commands
from tables.storage import (
    CHANGES,
    DLPACK,
    MAP_LOCATIONS,
    PLACES,
    SHARING,
    SURVIVALS,
    Rule,
    arrival,
    dlpack,
    map_locations,
    sharing_rules,
    storage_changes,
    survivals,
)
from tables.stream import (
    LAUNCH_MODES,
    event_calls,
    event_methods,
    launch_modes,
    stream_calls,
    stream_methods,
    stream_timeline,
    timeline,
    timeline_source,
)
from tables.stubs import (
    SERVED,
    Served,
    installed_stubs,
    listed_stubs,
    served_operators,
    stub_list,
)
from tables.versions import (
    MILESTONES,
    differences,
    method_history,
    milestones,
    pytorch,
    record,
    since,
    snapshot,
    versions_changes,
    versions_passed,
)
from tables.virtuals import (
    INTERFACES,
    default,
    include_folder,
    methods,
    overrides,
    provided,
    virtual_methods,
)
