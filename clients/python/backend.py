"""Builds the wheel from pyproject.toml and the directory carstate.

It needs nothing but Python 3.11, so a build reaches no network, and always gives the same bytes.
"""

import base64
import hashlib
import pathlib
import tomllib
import zipfile

HERE = pathlib.Path(__file__).parent


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    project = tomllib.loads((HERE / "pyproject.toml").read_text())["project"]
    name = f"{project['name']}-{project['version']}"
    info = name + ".dist-info/"
    files = {f"carstate/{f.name}": f.read_bytes() for f in sorted((HERE / "carstate").iterdir()) if f.is_file()}
    licence = HERE.parent.parent / "LICENSE"
    if licence.exists():  # in the repository
        files[info + "licenses/LICENSE"] = licence.read_bytes()
    files[info + "METADATA"] = (
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\nSummary: {project['description']}\n"
        f"License: {project['license']}\nRequires-Python: {project['requires-python']}\n"
    ).encode()
    files[info + "WHEEL"] = b"Wheel-Version: 1.0\nGenerator: carstate\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content)}\n"
    files[info + "RECORD"] = f"{record}{info}RECORD,,\n".encode()
    file = name + "-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / file, "w", zipfile.ZIP_DEFLATED) as out:
        for path, content in files.items():
            out.writestr(zipfile.ZipInfo(path), content, zipfile.ZIP_DEFLATED)
    return file
