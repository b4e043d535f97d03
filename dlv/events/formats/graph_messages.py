"""Field numbers of GraphDef and RunMetadata, the two messages that are shown as text.

A message a paragraph: its name, then `number name type`. After a name, `*` says repeated, `?`
one of several, `=` written even if zero, `%` a map (`key:value`); a type that begins with `@`
is an enumeration.
"""

from __future__ import annotations

MESSAGES = """\
AllocationDescription: 1 requested_bytes int64, 2 allocated_bytes int64, 3 allocator_name
  string, 4 allocation_id int64, 5 has_single_reference bool, 6 ptr uint64
AllocationRecord: 1 alloc_micros int64, 2 alloc_bytes int64
AllocatorMemoryUsed: 1 allocator_name string, 2 total_bytes int64, 3 peak_bytes int64, 4
  live_bytes int64, 5 allocator_bytes_in_use int64, 6 allocation_records* AllocationRecord
AttrValue: 1 list? AttrValue.ListValue, 2 s? bytes, 3 i? int64, 4 f? float, 5 b? bool, 6 type?
  @DataType, 7 shape? TensorShapeProto, 8 tensor? TensorProto, 9 placeholder? string, 10 func?
  NameAttrList
AttrValue.ListValue: 2 s* bytes, 3 i* int64, 4 f* float, 5 b* bool, 6 type* @DataType, 7 shape*
  TensorShapeProto, 8 tensor* TensorProto, 9 func* NameAttrList
CostGraphDef: 1 node* CostGraphDef.Node, 2 cost* CostGraphDef.AggregatedCost
CostGraphDef.AggregatedCost: 1 cost float, 2 dimension string
CostGraphDef.Node: 1 name string, 2 device string, 3 id int32, 4 input_info*
  CostGraphDef.Node.InputInfo, 5 output_info* CostGraphDef.Node.OutputInfo, 6
  temporary_memory_size int64, 7 is_final bool, 8 control_input* int32, 9 compute_cost int64, 10
  host_temp_memory_size int64, 11 device_temp_memory_size int64, 12 persistent_memory_size
  int64, 14 compute_time int64, 15 memory_time int64, 16 device_persistent_memory_size int64, 17
  inaccurate bool
CostGraphDef.Node.InputInfo: 1 preceding_node int32, 2 preceding_port int32
CostGraphDef.Node.OutputInfo: 1 size int64, 2 alias_input_port int64, 3 shape TensorShapeProto,
  4 dtype @DataType
DeviceStepStats: 1 device string, 2 node_stats* NodeExecStats, 3 thread_names% uint32:string
FullTypeDef: 1 type_id @FullTypeId, 2 args* FullTypeDef, 3 s? string, 4 i? int64
FunctionDef: 1 signature OpDef, 3 node_def* NodeDef, 4 ret% string:string, 5 attr%
  string:AttrValue, 6 control_ret% string:string, 7 arg_attr% uint32:FunctionDef.ArgAttrs, 8
  resource_arg_unique_id% uint32:uint32
FunctionDef.ArgAttrs: 1 attr% string:AttrValue
FunctionDefLibrary: 1 function* FunctionDef, 2 gradient* GradientDef, 3 registered_gradients*
  RegisteredGradient
GradientDef: 1 function_name string, 2 gradient_func string
GraphDebugInfo: 1 files* string, 2 traces% string:GraphDebugInfo.StackTrace, 4 frames_by_id%
  fixed64:GraphDebugInfo.FileLineCol, 5 name_to_trace_id% string:fixed64, 6 traces_by_id%
  fixed64:GraphDebugInfo.StackTrace
GraphDebugInfo.FileLineCol: 1 file_index= int32, 2 line= int32, 3 col= int32, 4 func= string, 5
  code= string
GraphDebugInfo.StackTrace: 1 file_line_cols* GraphDebugInfo.FileLineCol, 2 frame_id* fixed64
GraphDef: 1 node* NodeDef, 2 library FunctionDefLibrary, 3 version int32, 4 versions VersionDef,
  5 debug_info GraphDebugInfo
MemoryStats: 1 temp_memory_size int64, 2 device_temp_memory_size int64, 3 persistent_memory_size
  int64, 4 device_persistent_memory_size int64, 5 persistent_tensor_alloc_ids* int64, 6
  device_persistent_tensor_alloc_ids* int64
NameAttrList: 1 name string, 2 attr% string:AttrValue
NodeDef: 1 name string, 2 op string, 3 input* string, 4 device string, 5 attr% string:AttrValue,
  6 experimental_debug_info NodeDef.ExperimentalDebugInfo, 7 experimental_type FullTypeDef
NodeDef.ExperimentalDebugInfo: 1 original_node_names* string, 2 original_func_names* string
NodeExecStats: 1 node_name string, 2 all_start_micros int64, 3 op_start_rel_micros int64, 4
  op_end_rel_micros int64, 5 all_end_rel_micros int64, 6 memory* AllocatorMemoryUsed, 7 output*
  NodeOutput, 8 timeline_label string, 9 scheduled_micros int64, 10 thread_id uint32, 11
  referenced_tensor* AllocationDescription, 12 memory_stats MemoryStats, 13 all_start_nanos
  int64, 14 op_start_rel_nanos int64, 15 op_end_rel_nanos int64, 16 all_end_rel_nanos int64, 17
  scheduled_nanos int64
NodeOutput: 1 slot int32, 3 tensor_description TensorDescription
OpDef: 1 name string, 2 input_arg* OpDef.ArgDef, 3 output_arg* OpDef.ArgDef, 4 attr*
  OpDef.AttrDef, 5 summary string, 6 description string, 8 deprecation OpDeprecation, 16
  is_aggregate bool, 17 is_stateful bool, 18 is_commutative bool, 19 allows_uninitialized_input
  bool, 20 control_output* string, 21 is_distributed_communication bool
OpDef.ArgDef: 1 name string, 2 description string, 3 type @DataType, 4 type_attr string, 5
  number_attr string, 6 type_list_attr string, 7 handle_data* ResourceHandleProto.DtypeAndShape,
  16 is_ref bool, 17 experimental_full_type FullTypeDef
OpDef.AttrDef: 1 name string, 2 type string, 3 default_value AttrValue, 4 description string, 5
  has_minimum bool, 6 minimum int64, 7 allowed_values AttrValue
OpDeprecation: 1 version int32, 2 explanation string
RegisteredGradient: 1 gradient_func string, 2 registered_op_type string
ResourceHandleProto: 1 device string, 2 container string, 3 name string, 4 hash_code uint64, 5
  maybe_type_name string, 6 dtypes_and_shapes* ResourceHandleProto.DtypeAndShape
ResourceHandleProto.DtypeAndShape: 1 dtype @DataType, 2 shape TensorShapeProto
RunMetadata: 1 step_stats StepStats, 2 cost_graph CostGraphDef, 3 partition_graphs* GraphDef, 4
  function_graphs* RunMetadata.FunctionGraphs, 5 session_metadata SessionMetadata
RunMetadata.FunctionGraphs: 1 partition_graphs* GraphDef, 2 pre_optimization_graph GraphDef, 3
  post_optimization_graph GraphDef
SessionMetadata: 1 name string, 2 version int64
StepStats: 1 dev_stats* DeviceStepStats
TensorDescription: 1 dtype @DataType, 2 shape TensorShapeProto, 4 allocation_description
  AllocationDescription
TensorProto: 1 dtype @DataType, 2 tensor_shape TensorShapeProto, 3 version_number int32, 4
  tensor_content bytes, 5 float_val* float, 6 double_val* double, 7 int_val* int32, 8
  string_val* bytes, 9 scomplex_val* float, 10 int64_val* int64, 11 bool_val* bool, 12
  dcomplex_val* double, 13 half_val* int32, 14 resource_handle_val* ResourceHandleProto, 15
  variant_val* VariantTensorDataProto, 16 uint32_val* uint32, 17 uint64_val* uint64, 18
  float8_val bytes
TensorShapeProto: 2 dim* TensorShapeProto.Dim, 3 unknown_rank bool
TensorShapeProto.Dim: 1 size int64, 2 name string
VariantTensorDataProto: 1 type_name string, 2 metadata bytes, 3 tensors* TensorProto
VersionDef: 1 producer int32, 2 min_consumer int32, 3 bad_consumers* int32
"""

ENUMERATIONS = """\
DataType: 0=DT_INVALID 1=DT_FLOAT 2=DT_DOUBLE 3=DT_INT32 4=DT_UINT8 5=DT_INT16 6=DT_INT8
  7=DT_STRING 8=DT_COMPLEX64 9=DT_INT64 10=DT_BOOL 11=DT_QINT8 12=DT_QUINT8 13=DT_QINT32
  14=DT_BFLOAT16 15=DT_QINT16 16=DT_QUINT16 17=DT_UINT16 18=DT_COMPLEX128 19=DT_HALF
  20=DT_RESOURCE 21=DT_VARIANT 22=DT_UINT32 23=DT_UINT64 24=DT_FLOAT8_E5M2 25=DT_FLOAT8_E4M3FN
  26=DT_FLOAT8_E4M3FNUZ 27=DT_FLOAT8_E4M3B11FNUZ 28=DT_FLOAT8_E5M2FNUZ 29=DT_INT4 30=DT_UINT4
  31=DT_INT2 32=DT_UINT2 33=DT_FLOAT4_E2M1FN 101=DT_FLOAT_REF 102=DT_DOUBLE_REF 103=DT_INT32_REF
  104=DT_UINT8_REF 105=DT_INT16_REF 106=DT_INT8_REF 107=DT_STRING_REF 108=DT_COMPLEX64_REF
  109=DT_INT64_REF 110=DT_BOOL_REF 111=DT_QINT8_REF 112=DT_QUINT8_REF 113=DT_QINT32_REF
  114=DT_BFLOAT16_REF 115=DT_QINT16_REF 116=DT_QUINT16_REF 117=DT_UINT16_REF
  118=DT_COMPLEX128_REF 119=DT_HALF_REF 120=DT_RESOURCE_REF 121=DT_VARIANT_REF 122=DT_UINT32_REF
  123=DT_UINT64_REF 124=DT_FLOAT8_E5M2_REF 125=DT_FLOAT8_E4M3FN_REF 126=DT_FLOAT8_E4M3FNUZ_REF
  127=DT_FLOAT8_E4M3B11FNUZ_REF 128=DT_FLOAT8_E5M2FNUZ_REF 129=DT_INT4_REF 130=DT_UINT4_REF
  131=DT_INT2_REF 132=DT_UINT2_REF 133=DT_FLOAT4_E2M1FN_REF
FullTypeId: 0=TFT_UNSET 1=TFT_VAR 2=TFT_ANY 3=TFT_PRODUCT 4=TFT_NAMED 20=TFT_FOR_EACH
  100=TFT_CALLABLE 200=TFT_BOOL 201=TFT_UINT8 202=TFT_UINT16 203=TFT_UINT32 204=TFT_UINT64
  205=TFT_INT8 206=TFT_INT16 207=TFT_INT32 208=TFT_INT64 209=TFT_HALF 210=TFT_FLOAT
  211=TFT_DOUBLE 212=TFT_COMPLEX64 213=TFT_COMPLEX128 214=TFT_STRING 215=TFT_BFLOAT16
  1000=TFT_TENSOR 1001=TFT_ARRAY 1002=TFT_OPTIONAL 1003=TFT_LITERAL 1004=TFT_ENCODED
  1005=TFT_SHAPE_TENSOR 10102=TFT_DATASET 10103=TFT_RAGGED 10104=TFT_ITERATOR
  10202=TFT_MUTEX_LOCK 10203=TFT_LEGACY_VARIANT
"""
