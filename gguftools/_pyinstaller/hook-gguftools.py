"""What PyInstaller cannot see: modules imported by name, the recipes, and llama-cpp-python's libraries."""

from PyInstaller.utils.hooks import collect_data_files, collect_dynamic_libs, collect_submodules

hiddenimports = collect_submodules("gguftools", filter=lambda name: "._pyinstaller" not in name)
datas = collect_data_files("gguftools")
binaries = collect_dynamic_libs("llama_cpp")
