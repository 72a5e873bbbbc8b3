"""What docs/design.md says of imports, beside the layers that `make check` enforces."""

import graphlib

import grimp


def test_no_module_imports_itself_by_way_of_others_inside_functions_neither():
    graph = grimp.build_graph("spurless", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert imports["spurless.train.fit"] >= {"spurless.train.session"}
    graphlib.TopologicalSorter(imports).prepare()  # CycleError names the circle
